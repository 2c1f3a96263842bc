// The request object `r`, over the natives `n` of http.rs. A request is a number there.
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
    const { create, defineProperty, freeze: freezeOne, values: valuesOf } = Object;
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

    // A value of a field or several, as natives take them.
    function values(value) {
        if (!isArray(value)) {
            return [bytes(value)];
        }
        const all = [];
        for (let i = 0; i < value.length; i++) {
            defineProperty(all, i, { value: bytes(value[i]) });
        }
        return all;
    }

    function descriptor(value) {
        return value === undefined ? undefined
            : { value, writable: true, enumerable: true, configurable: true };
    }

    // The handlers of proxies are made once. The number of the request is in the target, which is
    // out of reach of scripts.
    function target(id) {
        const object = create(null);
        object.id = id;
        return object;
    }

    function fields(out) {
        const get = (of, name) => typeof name === 'string' ? n.field(of.id, out, name) : undefined;
        return {
            __proto__: null,
            get,
            has: (of, name) => get(of, name) !== undefined,
            ownKeys: (of) => n.keys(of.id, out),
            getOwnPropertyDescriptor: (of, name) => descriptor(get(of, name)),
            set: () => false,
            defineProperty: () => false,
            deleteProperty: () => false,
            setPrototypeOf: () => false,
            preventExtensions: () => false,
        };
    }

    function setField(of, name, value) {
        n.setField(of.id, `${name}`, values(value));
        return true;
    }

    const inHandler = fields(false);

    const outHandler = {
        __proto__: null,
        ...fields(true),
        set: setField,
        defineProperty(of, name, what) {
            if (what.get !== undefined || what.set !== undefined) {
                throw new TypeError('cannot define getter or setter');
            }
            return setField(of, name, what.value);
        },
        deleteProperty(of, name) {
            n.setField(of.id, `${name}`, []);
            return true;
        },
    };

    function variablesHandler(raw) {
        const get = (of, name) =>
            typeof name === 'string' ? n.variable(of.id, name, raw) : undefined;
        return {
            __proto__: null,
            get,
            has: (of, name) => get(of, name) !== undefined,
            getOwnPropertyDescriptor: (of, name) => descriptor(get(of, name)),
            set(of, name, value) {
                n.setVariable(of.id, `${name}`, bytes(value));
                return true;
            },
            defineProperty(of, name, what) {
                n.setVariable(of.id, `${name}`, bytes(what.value));
                return true;
            },
            deleteProperty: () => false,
            // Variables cannot be listed.
            ownKeys: () => [],
            setPrototypeOf: () => false,
            preventExtensions: () => false,
        };
    }

    const variableHandler = variablesHandler(false);
    const rawVariableHandler = variablesHandler(true);

    function variables(id, raw) {
        return new Proxy(target(id), raw ? rawVariableHandler : variableHandler);
    }

    let idOf;
    let madeOf;
    let objectOf;
    let latest;

    class Request {
        #id;
        // What its getters have made, with the number: most scripts use one of them or none.
        #made;

        constructor(id) { this.#id = id; }

        static {
            idOf = (object) => {
                if (typeof object !== 'object' || object === null || !(#id in object)) {
                    throw new TypeError('"this" is not a request object');
                }
                return object.#id;
            };
            madeOf = (object) => {
                const id = idOf(object);
                return object.#made ??= { __proto__: null, id };
            };
            objectOf = (id) => {
                if (latest !== undefined && latest.#id === id) {
                    return latest;
                }
                return new Request(id);
            };
        }

        get args() {
            const made = madeOf(this);
            if (made.args === undefined) {
                const pairs = n.args(made.id);
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
                made.args = args;
            }
            return made.args;
        }

        get headersIn() {
            const made = madeOf(this);
            return made.headersIn ??= new Proxy(target(made.id), inHandler);
        }

        get headersOut() {
            const made = madeOf(this);
            return made.headersOut ??= new Proxy(target(made.id), outHandler);
        }

        get variables() {
            const made = madeOf(this);
            return made.variables ??= variables(made.id, false);
        }

        get rawVariables() {
            const made = madeOf(this);
            return made.rawVariables ??= variables(made.id, true);
        }

        get httpVersion() { return n.text(idOf(this), 0); }
        get method() { return n.text(idOf(this), 1); }
        get remoteAddress() { return n.text(idOf(this), 2); }
        get requestLine() { return n.text(idOf(this), 3); }
        get uri() { return n.text(idOf(this), 4); }
        get internal() { return n.internal(idOf(this)); }
        get rawHeadersIn() { return n.rawFields(idOf(this), false); }
        get rawHeadersOut() { return n.rawFields(idOf(this), true); }
        get requestBuffer() { return n.requestBody(idOf(this), true); }
        get requestText() { return n.requestBody(idOf(this), false); }
        get responseBuffer() { return n.responseBody(idOf(this), true); }
        get responseText() { return n.responseBody(idOf(this), false); }

        get parent() {
            const id = n.parent(idOf(this));
            return id === undefined ? undefined : objectOf(id);
        }

        get status() { return n.status(idOf(this)); }
        set status(value) { n.setStatus(idOf(this), integer(value)); }

        done() { n.act(idOf(this), 0); }
        finish() { n.act(idOf(this), 1); }
        sendHeader() { n.act(idOf(this), 2); }
        decline() { n.act(idOf(this), 3); }

        error(...texts) {
            const id = idOf(this);
            for (let i = 0; i < texts.length; i++) n.log(id, 2, `${texts[i]}`);
        }

        log(...texts) {
            const id = idOf(this);
            for (let i = 0; i < texts.length; i++) n.log(id, 0, `${texts[i]}`);
        }

        warn(...texts) {
            const id = idOf(this);
            for (let i = 0; i < texts.length; i++) n.log(id, 1, `${texts[i]}`);
        }

        internalRedirect(uri) { n.redirect(idOf(this), bytes(uri)); }

        return(status, body) {
            const id = idOf(this);
            const code = integer(status);
            if (code < 0 || code > 999) {
                throw new RangeError('code is out of range');
            }
            const plain = code >= 400 && (body === undefined || body === null);
            n.return(id, code, plain ? undefined : bytes(body));
        }

        send(...pieces) {
            const id = idOf(this);
            for (let i = 0; i < pieces.length; i++) {
                pieces[i] = convert(pieces[i], 'arg');
            }
            n.send(id, pieces);
        }

        sendBuffer(data, flags) {
            const id = idOf(this);
            const given = typeof flags === 'object' && flags !== null;
            n.sendBuffer(id, bytes(data), given ? !!flags.flush : undefined);
        }

        setReturnValue(value) { n.setReturnValue(idOf(this), value); }

        jsVarNames(prefix) {
            idOf(this);
            if (prefix !== undefined && typeof prefix !== 'string') {
                throw new TypeError('"prefix" must be a string');
            }
            return n.variableNames(prefix ?? '');
        }

        readRequestArrayBuffer() { return n.readBody(idOf(this), 0); }
        readRequestJSON() { return n.readBody(idOf(this), 1); }
        readRequestText() { return n.readBody(idOf(this), 2); }

        readRequestForm(options) {
            const id = idOf(this);
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
            const made = madeOf(this);
            if (made.form !== undefined) {
                return made.form;
            }
            const make = (body) => made.form ??= new RequestForm(n.parseForm(id, body, max));
            const body = n.readBody(id, 3);
            return isView(body) ? make(body) : apply(then, body, [make]);
        }

        subrequest(uri, options, callback) {
            const id = idOf(this);
            n.mayAsk(id);
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
            return n.subrequest(id, uri, args, method, body, detached, done);
        }
    }

    defineProperty(Request.prototype, Symbol.toStringTag,
        { value: 'Request', configurable: true });

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
        #id;
        constructor(id) { this.#id = id; }

        static #of(object) {
            if (typeof object !== 'object' || object === null || !(#id in object)) {
                throw new TypeError('"this" is not a periodic object');
            }
            return object.#id;
        }

        get variables() { return variables(PeriodicSession.#of(this), false); }
        get rawVariables() { return variables(PeriodicSession.#of(this), true); }
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
        request: (id, isPeriodic) => isPeriodic ? new PeriodicSession(id)
            : (latest = objectOf(id)),
        reply: objectOf,
    };
}
