// `ngx.fetch`, `Headers`, `Request` and `Response`, over the natives `n` of fetch.rs.
export default function (n) {
    'use strict';

    const { TypeError, RangeError, Error, Object, Promise, Proxy, Reflect } = globalThis;
    const { ngx } = n;
    const { captureStackTrace } = Error;
    const { toString: errorText } = Error.prototype;
    const { isArray } = Array;
    const { isView } = ArrayBuffer;
    const { defineProperty, keys: keysOf } = Object;
    const { apply } = Reflect;
    const { then } = Promise.prototype;
    const { toLowerCase, toUpperCase, replace, slice } = String.prototype;
    const { sort } = Array.prototype;

    const lower = (text) => apply(toLowerCase, text, []);
    const upper = (text) => apply(toUpperCase, text, []);

    // A string, bytes as they are, or nothing.
    const bytes = (value) => value === undefined || value === null ? ''
        : isView(value) ? value : `${value}`;

    // What lies behind the proxy of a Headers object.
    const tableOf = new WeakMap();
    const { get: tableFor, set: setTable } = WeakMap.prototype;

    function table(headers) {
        const found = typeof headers === 'object' && headers !== null
            ? apply(tableFor, tableOf, [headers]) : undefined;
        if (found === undefined) {
            throw new TypeError('"this" is not fetch headers object');
        }
        return found;
    }

    function isHeaders(value) {
        return typeof value === 'object' && value !== null
            && apply(tableFor, tableOf, [value]) !== undefined;
    }

    // Fields in order, as [name, value, lower-case name].
    function matching(fields, name) {
        const key = lower(name);
        const found = [];
        for (let i = 0; i < fields.length; i++) {
            if (fields[i][2] === key) found[found.length] = fields[i];
        }
        return found;
    }

    function joined(fields, name) {
        const found = matching(fields, name);
        if (found.length === 0) {
            return null;
        }
        let text = found[0][1];
        for (let i = 1; i < found.length; i++) text += `, ${found[i][1]}`;
        return text;
    }

    function checked(name, value) {
        name = `${name}`;
        if (!n.isName(name)) {
            throw new TypeError('invalid header name');
        }
        if (value === undefined) {
            return [name];
        }
        value = apply(replace, `${value}`, [/^[ \t]+|[ \t]+$/g, '']);
        if (!n.isValue(value)) {
            throw new TypeError('invalid header value');
        }
        return [name, value, lower(name)];
    }

    function writable(headers) {
        const found = table(headers);
        if (found.immutable) {
            throw new TypeError('cannot modify immutable object');
        }
        return found;
    }

    function append(found, name, value) {
        found.fields[found.fields.length] = checked(name, `${value}`);
    }

    function remove(found, name) {
        const key = lower(name);
        const left = [];
        for (let i = 0; i < found.fields.length; i++) {
            if (found.fields[i][2] !== key) left[left.length] = found.fields[i];
        }
        found.fields = left;
    }

    function fill(found, init) {
        if (isHeaders(init)) {
            const { fields } = table(init);
            for (let i = 0; i < fields.length; i++) {
                append(found, fields[i][0], fields[i][1]);
            }
        } else if (isArray(init)) {
            for (let i = 0; i < init.length; i++) {
                if (init[i].length !== 2) {
                    throw new TypeError('header does not contain exactly two items');
                }
                append(found, init[i][0], init[i][1]);
            }
        } else {
            const names = keysOf(init);
            for (let i = 0; i < names.length; i++) append(found, names[i], init[names[i]]);
        }
    }

    // Fields are properties, too: `reply.headers.foo`.
    const asProperties = {
        get(target, name, receiver) {
            if (typeof name === 'string' && !(name in target)) {
                return joined(apply(tableFor, tableOf, [receiver])?.fields ?? [], name)
                    ?? undefined;
            }
            return target[name];
        },
        has(target, name) {
            return name in target || (typeof name === 'string'
                && joined(apply(tableFor, tableOf, [target]).fields, name) !== null);
        },
        ownKeys(target) {
            const { fields } = apply(tableFor, tableOf, [target]);
            const names = [];
            for (let i = 0; i < fields.length; i++) {
                if (!apply(includes, names, [fields[i][0]])) names[names.length] = fields[i][0];
            }
            return names;
        },
        getOwnPropertyDescriptor(target, name) {
            const { fields } = apply(tableFor, tableOf, [target]);
            const value = typeof name === 'string' ? joined(fields, name) : null;
            return value === null ? undefined
                : { value, enumerable: true, configurable: true, writable: false };
        },
    };
    const { includes } = Array.prototype;

    class Headers {
        constructor(init) {
            const found = { fields: [], immutable: false };
            const proxy = new Proxy(this, asProperties);
            apply(setTable, tableOf, [this, found]);
            apply(setTable, tableOf, [proxy, found]);
            if (init !== undefined) {
                if (typeof init !== 'object' || init === null) {
                    throw new TypeError('Headers is not an object');
                }
                fill(found, init);
            }
            return proxy;
        }

        append(name, value) { append(writable(this), name, value); }

        delete(name) {
            const found = writable(this);
            remove(found, checked(name)[0]);
        }

        get(name) { return joined(table(this).fields, checked(name)[0]); }

        getAll(name) {
            const found = matching(table(this).fields, checked(name)[0]);
            const all = [];
            for (let i = 0; i < found.length; i++) all[i] = found[i][1];
            return all;
        }

        has(name) { return matching(table(this).fields, checked(name)[0]).length !== 0; }

        set(name, value) {
            const found = writable(this);
            const field = checked(name, `${value}`);
            const before = matching(found.fields, field[0]);
            // The name stays as it was written first.
            if (before.length !== 0) field[0] = before[0][0];
            remove(found, field[0]);
            found.fields[found.fields.length] = field;
        }

        forEach(callback) {
            const { fields } = table(this);
            if (typeof callback !== 'function') {
                throw new TypeError('"callback" is not a function');
            }
            const names = [];
            for (let i = 0; i < fields.length; i++) {
                let isKnown = false;
                for (let k = 0; k < names.length; k++) {
                    isKnown ||= lower(names[k]) === fields[i][2];
                }
                if (!isKnown) names[names.length] = fields[i][0];
            }
            apply(sort, names, []);
            for (let i = 0; i < names.length; i++) {
                // As in njs: the name, then the value.
                apply(callback, undefined, [names[i], joined(fields, names[i])]);
            }
        }
    }

    defineProperty(Headers.prototype, Symbol.toStringTag,
        { value: 'Headers', configurable: true });

    function oneOf(init, name, words) {
        const value = init[name];
        if (value === undefined) {
            return words[0];
        }
        const text = `${value}`;
        for (let i = 0; i < words.length; i++) {
            if (words[i] === text) return text;
        }
        throw new TypeError(`unknown ${name} type: ${text}`);
    }

    const CACHE = ['default', 'no-store', 'reload', 'no-cache', 'force-cache', 'only-if-cached'];
    const CREDENTIALS = ['same-origin', 'omit', 'include'];
    const MODES = ['no-cors', 'cors', 'same-origin', 'navigate', 'websocket'];
    const USUAL = ['DELETE', 'GET', 'HEAD', 'OPTIONS', 'POST', 'PUT'];
    const FORBIDDEN = ['CONNECT', 'TRACE', 'TRACK'];

    function method(text) {
        if (!n.isTarget(text) || text === '') {
            throw new TypeError('invalid Request method');
        }
        const large = upper(text);
        for (let i = 0; i < FORBIDDEN.length; i++) {
            if (large === FORBIDDEN[i]) throw new TypeError(`forbidden method: ${FORBIDDEN[i]}`);
        }
        for (let i = 0; i < USUAL.length; i++) {
            if (large === USUAL[i]) return large;
        }
        return text;
    }

    // The body of a request or a response, which is read once.
    function read(body, kind) {
        if (body.used) {
            throw new TypeError('body stream already read');
        }
        body.used = true;
        return n.convert(body.bytes, kind);
    }

    async function consume(body, kind) { return read(body, kind); }

    let requestOf;

    class Request {
        #url;
        #method = 'GET';
        #headers;
        #body = { bytes: '', used: false };
        #cache = CACHE[0];
        #credentials = CREDENTIALS[0];
        #mode = MODES[0];

        static {
            requestOf = (r) => ({ url: r.#url, method: r.#method, body: r.#body,
                fields: table(r.#headers).fields });
        }

        constructor(input, init) {
            if (input === undefined) {
                throw new TypeError('1st argument is required');
            }
            this.#headers = new Headers();
            if (typeof input === 'string') {
                this.#url = apply(replace, input, [/^[\x00-\x20]+|[\x00-\x20]+$/g, '']);
            } else if (typeof input === 'object' && input !== null && #url in input) {
                this.#url = input.#url;
                this.#method = input.#method;
                this.#body = { ...input.#body };
                this.#cache = input.#cache;
                this.#credentials = input.#credentials;
                this.#mode = input.#mode;
                fill(table(this.#headers), input.#headers);
            } else {
                throw new TypeError('input is not string or a Request object');
            }
            const problem = n.problem(this.#url);
            if (problem !== undefined) {
                throw new TypeError(problem);
            }
            if (typeof init === 'object' && init !== null) {
                this.#take(init);
            }
        }

        #take(init) {
            if (init.method !== undefined) this.#method = `${init.method}`;
            this.#method = method(this.#method);
            this.#cache = oneOf(init, 'cache', CACHE);
            this.#credentials = oneOf(init, 'credentials', CREDENTIALS);
            this.#mode = oneOf(init, 'mode', MODES);
            const { headers, body } = init;
            if (headers !== undefined) {
                if (typeof headers !== 'object' || headers === null) {
                    throw new TypeError('Headers is not an object');
                }
                this.#headers = new Headers(headers);
            }
            if (body !== undefined) {
                this.#body = { bytes: bytes(body), used: false };
                if (typeof body === 'string' && !this.#headers.has('Content-Type')) {
                    this.#headers.append('Content-Type', 'text/plain;charset=UTF-8');
                }
            }
        }

        get bodyUsed() { return this.#body.used; }
        get cache() { return this.#cache; }
        get credentials() { return this.#credentials; }
        get headers() { return this.#headers; }
        get method() { return this.#method; }
        get mode() { return this.#mode; }
        get url() { return this.#url; }

        arrayBuffer() { return consume(this.#body, 0); }
        json() { return consume(this.#body, 1); }
        text() { return consume(this.#body, 2); }
    }

    defineProperty(Request.prototype, Symbol.toStringTag,
        { value: 'Request', configurable: true });

    let answered;

    class Response {
        #status = 200;
        #statusText = '';
        #headers = new Headers();
        #body;
        #url = '';
        #isFetched = false;

        static {
            answered = (reply) => {
                const response = new Response();
                response.#status = reply.status;
                response.#statusText = reply.statusText;
                response.#body = { bytes: reply.body, used: false };
                response.#url = reply.url;
                response.#isFetched = true;
                const found = table(response.#headers);
                const { fields } = reply;
                for (let i = 0; i < fields.length; i++) {
                    const [name, value] = fields[i];
                    found.fields[i] = [name, value, lower(name)];
                }
                found.immutable = true;
                return response;
            };
        }

        constructor(body, init) {
            if (typeof init === 'object' && init !== null) {
                const { status, statusText, headers } = init;
                if (status !== undefined) {
                    this.#status = +status | 0;
                    if (this.#status < 200 || this.#status > 599) {
                        throw new RangeError(`status provided (${this.#status}) is outside of `
                            + '[200, 599] range');
                    }
                }
                if (statusText !== undefined) {
                    this.#statusText = `${statusText}`;
                    if (!n.isStatusText(this.#statusText)) {
                        throw new TypeError('invalid Response statusText');
                    }
                }
                if (headers !== undefined) {
                    if (typeof headers !== 'object' || headers === null) {
                        throw new TypeError('Headers is not an object');
                    }
                    fill(table(this.#headers), headers);
                }
            }
            this.#body = { bytes: bytes(body), used: false };
            if (typeof body === 'string' && !this.#headers.has('Content-Type')) {
                append(table(this.#headers), 'Content-Type', 'text/plain;charset=UTF-8');
            }
        }

        get bodyUsed() { return this.#body.used; }
        get headers() { return this.#headers; }
        get ok() { return this.#status >= 200 && this.#status < 300; }
        get redirected() { return false; }
        get status() { return this.#status; }
        get statusText() { return this.#statusText; }
        get type() { return this.#isFetched ? 'basic' : 'default'; }
        get url() { return this.#url; }

        arrayBuffer() { return consume(this.#body, 0); }
        json() { return consume(this.#body, 1); }
        text() { return consume(this.#body, 2); }
    }

    defineProperty(Response.prototype, Symbol.toStringTag,
        { value: 'Response', configurable: true });

    // An error of the exchange has the stack of the call, not of the event loop. `frames` begins
    // with a line feed.
    function failed(error, frames) {
        if (typeof error === 'object' && error !== null) {
            const value = apply(errorText, error, []) + frames;
            defineProperty(error, 'stack', { value, writable: true, configurable: true });
        }
        throw error;
    }

    function fetch(input, init) {
        try {
            const request = requestOf(new Request(input, init));
            const options = typeof init === 'object' && init !== null ? init : {};
            const number = (value) => value === undefined ? undefined : +value;
            // Its text is `Error`, whatever scripts have done to prototypes.
            const trace = { __proto__: null, name: 'Error', message: '' };
            captureStackTrace(trace, fetch);
            const frames = typeof trace.stack === 'string'
                ? apply(slice, trace.stack, ['Error'.length]) : '';
            const sent = n.fetch(request.url, request.method, request.fields,
                request.body.bytes, number(options.max_response_body_size),
                options.verify === undefined ? undefined : !!options.verify);
            return apply(then, sent, [answered, (error) => failed(error, frames)]);
        } catch (error) {
            return Promise.reject(error);
        }
    }

    for (const [name, value] of [['Headers', Headers], ['Request', Request],
        ['Response', Response]]) {
        defineProperty(globalThis, name, { value, writable: true, configurable: true });
    }
    defineProperty(ngx, 'fetch',
        { value: fetch, writable: true, enumerable: true, configurable: true });

    return {};
}
