// What the request object `r` has beside the natives of its class (`http/request.rs`), over further
// natives `n` (`http/mod.rs`). Those take a request or a target of its proxies.
//
// Scripts may change the built-in objects of their context, so everything of them that is used
// later is taken here.
export default function (n) {
    'use strict';

    const { isArray } = Array;
    const { isView } = ArrayBuffer;
    const { isFinite, MAX_SAFE_INTEGER } = Number;
    const { trunc } = Math;
    const { apply } = Reflect;
    const { TypeError, RangeError, Proxy, Object } = globalThis;
    const { defineProperty, freeze: freezeOne, getOwnPropertyDescriptors } = Object;
    const { values: valuesOf } = Object;
    const { then } = Promise.prototype;

    // What natives take as bytes: a view as it is, nothing as '', anything else as String(value).
    function bytes(value) {
        return value === undefined || value === null ? '' : isView(value) ? value : `${value}`;
    }

    function convert(value, what) {
        try {
            return bytes(value);
        } catch {
            throw new TypeError(`failed to convert ${what}`);
        }
    }

    function integer(value) {
        const number = +value;
        if (!isFinite(number)) {
            throw new TypeError('invalid number');
        }
        if (number > MAX_SAFE_INTEGER || number < -MAX_SAFE_INTEGER) {
            throw new RangeError('number is out of range');
        }
        return trunc(number);
    }

    // The values of a field, as natives take them.
    function values(all) {
        const taken = [];
        for (let i = 0; i < all.length; i++) {
            defineProperty(taken, i, { value: bytes(all[i]) });
        }
        return taken;
    }

    function descriptor(value) {
        return value === undefined ? undefined
            : { value, writable: true, enumerable: true, configurable: true };
    }

    // The handlers of proxies are made once. The natives know of which request a target is.
    function fields(get, out) {
        return {
            __proto__: null,
            get,
            has: (of, name) => get(of, name) !== undefined,
            ownKeys: (of) => n.keys(of, out),
            getOwnPropertyDescriptor: (of, name) => descriptor(get(of, name)),
            set: () => false,
            defineProperty: () => false,
            deleteProperty: () => false,
            setPrototypeOf: () => false,
            preventExtensions: () => false,
        };
    }

    const inHandler = fields(n.fieldIn, false);

    const outHandler = {
        __proto__: null,
        ...fields(n.fieldOut, true),
        set: n.setField,
        defineProperty(of, name, what) {
            if (what.get !== undefined || what.set !== undefined) {
                throw new TypeError('cannot define getter or setter');
            }
            return n.setField(of, name, what.value);
        },
        deleteProperty: n.deleteField,
    };

    function variablesHandler(get) {
        return {
            __proto__: null,
            get,
            has: (of, name) => get(of, name) !== undefined,
            getOwnPropertyDescriptor: (of, name) => descriptor(get(of, name)),
            set: n.setVariable,
            defineProperty: (of, name, what) => n.setVariable(of, name, what.value),
            deleteProperty: () => false,
            // Variables cannot be listed.
            ownKeys: () => [],
            setPrototypeOf: () => false,
            preventExtensions: () => false,
        };
    }

    const variableHandler = variablesHandler(n.variable);
    const rawVariableHandler = variablesHandler(n.rawVariable);

    const handlers = [inHandler, outHandler, variableHandler, rawVariableHandler];

    // The arguments of a request as an object.
    function argsOf(target) {
        const pairs = n.args(target);
        const args = {};
        for (let i = 0; i < pairs.length; i += 2) {
            const name = pairs[i];
            const value = pairs[i + 1];
            const before = args[name];
            if (before === undefined) {
                args[name] = value;
            } else if (isArray(before)) {
                before[before.length] = value;
            } else {
                args[name] = [before, value];
            }
        }
        return args;
    }

    const members = {
        readRequestForm(options) {
            const target = n.target(this);
            let max = 128;
            if (options !== undefined) {
                if (typeof options !== 'object' || options === null) {
                    throw new TypeError('"options" must be an object');
                }
                if (options.maxKeys !== undefined) {
                    max = integer(options.maxKeys);
                    if (max < 1) {
                        throw new TypeError('"maxKeys" must be a positive integer');
                    }
                }
            }
            const known = n.form(target);
            if (known !== undefined) {
                return known;
            }
            const make = (body) => {
                let form = n.form(target);
                if (form === undefined) {
                    form = new RequestForm(n.parseForm(target, body, max));
                    n.keepForm(target, form);
                }
                return form;
            };
            const body = n.readBody(target);
            return isView(body) ? make(body) : apply(then, body, [make]);
        },

        subrequest(uri, options, callback) {
            n.mayAsk(this);
            uri = convert(uri, 'uri arg');
            if (uri.length === 0) {
                throw new TypeError('uri is empty');
            }
            let args = '';
            let method = '';
            let body;
            let detached = false;
            let done;
            if (typeof options === 'string') {
                args = options;
            } else if (typeof options === 'function') {
                done = options;
            } else if (typeof options === 'object' && options !== null) {
                let value = options.args;
                if (value !== undefined) args = convert(value, 'options.args');
                detached = !!options.detached;
                value = options.method;
                if (value !== undefined) method = convert(value, 'option.method');
                value = options.body;
                if (value !== undefined) body = convert(value, 'option.body');
            } else if (options !== undefined && options !== null) {
                throw new TypeError('failed to convert args');
            }
            if (done === undefined && callback !== undefined && callback !== null) {
                if (typeof callback !== 'function') {
                    throw new TypeError('callback is not a function');
                }
                done = callback;
            }
            if (detached && done !== undefined) {
                throw new TypeError('detached flag and callback are mutually exclusive');
            }
            return n.subrequest(this, uri, args, method, body, detached, done);
        },
    };

    const described = getOwnPropertyDescriptors(members);
    for (const name in described) {
        described[name].enumerable = false;
        defineProperty(n.prototype, name, described[name]);
    }

    class RequestForm {
        #entries;

        constructor(entries) { this.#entries = entries; }

        static #of(form) {
            if (typeof form !== 'object' || form === null || !(#entries in form)) {
                throw new TypeError('"this" is not a RequestForm');
            }
            return form.#entries;
        }

        static #name(name) {
            try {
                return `${name}`;
            } catch {
                throw new TypeError('"name" must be a string');
            }
        }

        static #value(entry) {
            return entry.file === undefined ? entry.value : { name: entry.file };
        }

        get(name) {
            const entries = RequestForm.#of(this);
            name = RequestForm.#name(name);
            for (let i = 0; i < entries.length; i++) {
                if (entries[i].name === name) return RequestForm.#value(entries[i]);
            }
            return null;
        }

        getAll(name) {
            const entries = RequestForm.#of(this);
            name = RequestForm.#name(name);
            const all = [];
            for (let i = 0; i < entries.length; i++) {
                if (entries[i].name === name) all[all.length] = RequestForm.#value(entries[i]);
            }
            return all;
        }

        has(name) {
            const entries = RequestForm.#of(this);
            name = RequestForm.#name(name);
            for (let i = 0; i < entries.length; i++) {
                if (entries[i].name === name) return true;
            }
            return false;
        }

        forEach(callback, self) {
            const entries = RequestForm.#of(this);
            if (typeof callback !== 'function') {
                throw new TypeError('"callback" is not a function');
            }
            for (let i = 0; i < entries.length; i++) {
                const { name } = entries[i];
                apply(callback, self, [RequestForm.#value(entries[i]), name, this]);
            }
        }

        hasFiles() {
            const entries = RequestForm.#of(this);
            for (let i = 0; i < entries.length; i++) {
                if (entries[i].file !== undefined) return true;
            }
            return false;
        }
    }

    defineProperty(RequestForm.prototype, Symbol.toStringTag,
        { value: 'RequestForm', configurable: true });

    // A run of js_periodic has variables, and nothing else of a request.
    class PeriodicSession {
        #target;
        constructor(target) { this.#target = target; }

        static #of(object) {
            if (typeof object !== 'object' || object === null || !(#target in object)) {
                throw new TypeError('"this" is not a periodic object');
            }
            return object.#target;
        }

        get variables() { return new Proxy(PeriodicSession.#of(this), variableHandler); }
        get rawVariables() { return new Proxy(PeriodicSession.#of(this), rawVariableHandler); }
    }

    defineProperty(PeriodicSession.prototype, Symbol.toStringTag,
        { value: 'PeriodicSession', configurable: true });

    // Freezes a value and all that it has.
    function freeze(value) {
        const left = [value];
        for (let i = 0; i < left.length; i++) {
            const object = left[i];
            if (typeof object === 'object' && object !== null) {
                freezeOne(object);
                const inner = valuesOf(object);
                for (let k = 0; k < inner.length; k++) left[left.length] = inner[k];
            }
        }
        return value;
    }

    // Has the natives know at once when a promise is rejected.
    function watch(promise) {
        apply(then, promise, [undefined, n.broken]);
    }

    return {
        freeze,
        watch,
        handlers,
        args: argsOf,
        values,
        periodic: (target) => new PeriodicSession(target),
    };
}
