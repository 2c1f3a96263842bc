// The session object `s` of stream, over the natives `n` of stream.rs. A session is a number there.
export default function (n) {
    'use strict';

    const { isView } = ArrayBuffer;
    const { isFinite } = Number;
    const { trunc } = Math;
    const { TypeError, RangeError, Proxy, Object } = globalThis;
    const { create, defineProperty } = Object;

    // What natives take as bytes: a view as it is, nothing as '', anything else as String(value).
    function bytes(value) {
        return value === undefined || value === null ? '' : isView(value) ? value : `${value}`;
    }

    function integer(value) {
        const number = +value;
        if (!isFinite(number)) {
            throw new TypeError('invalid number');
        }
        return trunc(number);
    }

    function variables(id, raw) {
        const get = (_, name) => typeof name === 'string' ? n.variable(id, name, raw) : undefined;
        function set(name, value) {
            n.setVariable(id, `${name}`, bytes(value));
            return true;
        }
        return new Proxy(create(null), {
            get,
            has: (_, name) => get(_, name) !== undefined,
            getOwnPropertyDescriptor(_, name) {
                const value = get(_, name);
                return value === undefined ? undefined
                    : { value, writable: true, enumerable: true, configurable: true };
            },
            set: (_, name, value) => set(name, value),
            defineProperty: (_, name, what) => set(name, what.value),
            deleteProperty: () => false,
        });
    }

    // The ways of bytes, and the forms in which callbacks get them.
    const UP = 0, DOWN = 1;
    const NONE = 0, TEXT = 1, BUFFER = 2;

    function wayOf(event) {
        switch (event) {
        case 'upload': case 'upstream': return UP;
        case 'download': case 'downstream': return DOWN;
        default: throw new TypeError(`unknown event "${event}"`);
        }
    }

    const DECLINED = -5;
    const FORBIDDEN = 403;
    const CODE_MIN = -6;
    const CODE_MAX = 503;

    let idOf;
    let objectOf;
    let latest;
    let call;

    class Session {
        #id;
        #up;
        #down;
        // The form of each way's callback. It stays when its callback is refused, as in nginx.
        #forms = [NONE, NONE];

        static {
            idOf = (object) => {
                if (typeof object !== 'object' || object === null || !(#id in object)) {
                    throw new TypeError('"this" is not a session object');
                }
                return object.#id;
            };
            objectOf = (id) => {
                if (latest !== undefined && latest.#id === id) {
                    return latest;
                }
                const object = new Session();
                object.#id = id;
                latest = object;
                return object;
            };
            call = (id, way, data, last) => {
                const session = objectOf(id);
                const callback = way === UP ? session.#up : session.#down;
                return callback?.(data, { last, from_upstream: way === DOWN });
            };
        }

        #done(usual, code) {
            const id = idOf(this);
            let number = usual;
            if (code !== undefined) {
                number = integer(code);
                if (number < CODE_MIN || number > CODE_MAX) {
                    throw new RangeError('code is out of range');
                }
            }
            n.done(id, number);
            this.#up = this.#down = undefined;
            this.#forms[UP] = this.#forms[DOWN] = NONE;
            n.listen(id, UP, NONE);
            n.listen(id, DOWN, NONE);
        }

        allow(code) { this.#done(0, code); }
        done(code) { this.#done(0, code); }
        decline(code) { this.#done(DECLINED, code); }
        deny(code) { this.#done(FORBIDDEN, code); }

        on(event, callback) {
            const id = idOf(this);
            event = `${event}`;
            const way = wayOf(event);
            const form = event === 'upload' || event === 'download' ? TEXT : BUFFER;
            this.#forms[way] = form;
            const other = this.#forms[1 - way];
            if (other !== NONE && other !== form) {
                throw new TypeError('mixing string and buffer events is not allowed');
            }
            if ((way === UP ? this.#up : this.#down) !== undefined) {
                throw new TypeError(`event handler "${event}" is already set`);
            }
            if (typeof callback !== 'function') {
                throw new TypeError('callback is not a function');
            }
            if (way === UP) {
                this.#up = callback;
            } else {
                this.#down = callback;
            }
            n.listen(id, way, form);
        }

        off(event) {
            const id = idOf(this);
            const way = wayOf(`${event}`);
            this.#forms[way] = NONE;
            if (way === UP) {
                this.#up = undefined;
            } else {
                this.#down = undefined;
            }
            n.listen(id, way, NONE);
        }

        #send(way, data, flags) {
            const id = idOf(this);
            let last;
            let flush;
            if (typeof flags === 'object' && flags !== null) {
                const { last: isLast, flush: flushes } = flags;
                if (isLast !== undefined) last = !!isLast;
                if (flushes !== undefined) flush = !!flushes;
                if (way === undefined && flags.from_upstream !== undefined) {
                    way = flags.from_upstream ? DOWN : UP;
                }
            }
            n.send(id, way, bytes(data), last, flush);
        }

        send(data, flags) { this.#send(undefined, data, flags); }
        sendUpstream(data, flags) { this.#send(UP, data, flags); }
        sendDownstream(data, flags) { this.#send(DOWN, data, flags); }

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

        get remoteAddress() { return n.remoteAddress(idOf(this)); }
        get status() { return n.status(idOf(this)); }
        get variables() { return variables(idOf(this), false); }
        get rawVariables() { return variables(idOf(this), true); }

        setReturnValue(value) { n.setReturnValue(idOf(this), value); }

        jsVarNames(prefix) {
            idOf(this);
            if (prefix !== undefined && typeof prefix !== 'string') {
                throw new TypeError('"prefix" must be a string');
            }
            return n.variableNames(prefix ?? '');
        }
    }

    defineProperty(Session.prototype, Symbol.toStringTag,
        { value: 'Stream Session', configurable: true });

    // A run of js_periodic has variables, and nothing else of a session.
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

    return {
        session: (id, isPeriodic) => isPeriodic ? new PeriodicSession(id) : objectOf(id),
        event: call,
    };
}
