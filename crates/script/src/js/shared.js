// `ngx.shared`, over the natives `n` of shared.rs. A dictionary is a number there.
export default function (n) {
    'use strict';

    const { TypeError, RangeError, Error, Object } = globalThis;
    const { ngx } = n;
    const { isFinite } = Number;
    const { defineProperty } = Object;

    class SharedMemoryError extends Error {
        get name() { return 'SharedMemoryError'; }
    }

    defineProperty(globalThis, 'SharedMemoryError',
        { value: SharedMemoryError, writable: true, configurable: true });

    // The message of a zone that has no room becomes an error of its own class.
    function room(isStored) {
        if (isStored === undefined) {
            throw new SharedMemoryError('failed to allocate memory in the shared zone');
        }
        return isStored;
    }

    const SET = 0, ADD = 1, REPLACE = 2;

    let indexOf;
    let make;

    class SharedDict {
        #index;

        static {
            indexOf = (dict) => {
                if (typeof dict !== 'object' || dict === null || !(#index in dict)) {
                    throw new TypeError('"this" is not a shared dict');
                }
                return dict.#index;
            };
            make = (index) => {
                const dict = new SharedDict();
                dict.#index = index;
                return dict;
            };
        }

        #store(how, key, value, timeout) {
            const index = indexOf(this);
            const isNumber = n.isNumber(index);
            if (typeof value !== (isNumber ? 'number' : 'string')) {
                throw new TypeError(`${isNumber ? 'number' : 'string'} value is expected`);
            }
            // The state file has no word for others.
            if (isNumber && !isFinite(value)) {
                throw new RangeError('finite value is expected');
            }
            let lifetime = 0;
            if (timeout !== undefined) {
                if (typeof timeout !== 'number') {
                    throw new TypeError('timeout is not a number');
                }
                if (!n.hasTimeout(index)) {
                    throw new TypeError('shared dict must be declared with timeout');
                }
                lifetime = timeout >>> 0;
                if (lifetime < 1) {
                    throw new TypeError('timeout must be greater than or equal to 1');
                }
            }
            return room(n.store(index, how, `${key}`, `${value}`, lifetime));
        }

        get name() { return n.name(indexOf(this)); }
        get capacity() { return n.capacity(indexOf(this)); }
        get type() { return n.isNumber(indexOf(this)) ? 'number' : 'string'; }

        add(key, value, timeout) { return this.#store(ADD, key, value, timeout); }
        replace(key, value) { return this.#store(REPLACE, key, value); }

        set(key, value, timeout) {
            this.#store(SET, key, value, timeout);
            return this;
        }

        get(key) { return n.get(indexOf(this), `${key}`); }
        has(key) { return n.get(indexOf(this), `${key}`) !== undefined; }
        pop(key) { return n.take(indexOf(this), `${key}`); }
        delete(key) { return n.take(indexOf(this), `${key}`) !== undefined; }

        clear() { n.clear(indexOf(this)); }
        freeSpace() { return n.freeSpace(indexOf(this)); }
        size() { return n.size(indexOf(this)); }
        keys(max = 1024) { return n.keys(indexOf(this), +max); }
        items(max = 1024) { return n.items(indexOf(this), +max); }

        ttl(key) {
            const index = indexOf(this);
            if (!n.hasTimeout(index)) {
                throw new TypeError('shared dict must be declared with timeout');
            }
            return n.ttl(index, `${key}`);
        }

        incr(key, delta, init, timeout) {
            const index = indexOf(this);
            if (!n.isNumber(index)) {
                throw new TypeError('shared dict is not a number dict');
            }
            const by = +delta;
            const from = init === undefined ? 0 : +init;
            if (!isFinite(by) || !isFinite(from)) {
                throw new TypeError('delta is not a number');
            }
            let lifetime = 0;
            if (timeout !== undefined) {
                lifetime = timeout >>> 0;
                if (!n.hasTimeout(index)) {
                    throw new TypeError('shared dict must be declared with timeout');
                }
                if (lifetime < 1) {
                    throw new RangeError('timeout must be greater than or equal to 1');
                }
            }
            return room(n.increment(index, `${key}`, by, from, lifetime));
        }
    }

    defineProperty(SharedDict.prototype, Symbol.toStringTag,
        { value: 'SharedDict', configurable: true });

    let all;
    defineProperty(ngx, 'shared', {
        enumerable: true,
        configurable: true,
        get() {
            if (all === undefined) {
                const dicts = {};
                const names = n.names();
                for (let i = 0; i < names.length; i++) {
                    defineProperty(dicts, names[i], { value: make(i), enumerable: true });
                }
                all = dicts;
            }
            return all;
        },
    });

    return {};
}
