// What the engine's errors and kinds of functions lack. This runs before any other script, so that
// everything it uses is the engine's own.
export default function () {
    'use strict';

    const { Error, Object, Reflect } = globalThis;
    const { defineProperty, getOwnPropertyDescriptor, getPrototypeOf } = Object;
    const { apply } = Reflect;

    // QuickJS-NG 0.16.2 never releases an object that was `stackTraceLimit`, nor, when an error is
    // made, a `prepareStackTrace` that is no function. Such an object refers to its engine, which
    // would stay in memory whole.
    for (const [name, plain] of [
        ['stackTraceLimit', (value) => +value],
        ['prepareStackTrace', (value) => typeof value === 'function' ? value : undefined],
    ]) {
        const own = getOwnPropertyDescriptor(Error, name);
        defineProperty(Error, name, {
            get: own.get,
            set(value) { apply(own.set, this, [plain(value)]); },
            configurable: true,
        });
    }

    // The constructors of the other kinds of functions, which have no names.
    for (const f of [async () => {}, function* () {}, async function* () {}]) {
        defineProperty(getPrototypeOf(f), 'constructor', { value: Function });
    }

    return {};
}
