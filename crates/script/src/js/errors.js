// What the engine's errors and kinds of functions lack. This runs before any other script, so that
// everything it uses is the engine's own.
export default function () {
    'use strict';

    const { Error, Object, Reflect } = globalThis;
    const { defineProperty, getOwnPropertyDescriptor, getPrototypeOf } = Object;
    const { apply } = Reflect;
    const { toString } = Error.prototype;
    const { startsWith } = String.prototype;

    // The text of an error in front of the frames, as with njs's own engine. The engine has frames
    // only. What `Error.prepareStackTrace` made stays as it is.
    function withText(error, frames) {
        const isOwn = typeof frames === 'string'
            && (frames === '' || apply(startsWith, frames, ['    at ']));
        if (!isOwn) {
            return frames;
        }
        try {
            return `${apply(toString, error, [])}\n${frames}`;
        } catch {
            // A name or a message that has no text.
            return frames;
        }
    }

    const stack = getOwnPropertyDescriptor(Error.prototype, 'stack');
    defineProperty(Error.prototype, 'stack', {
        get: { stack() { return withText(this, apply(stack.get, this, [])); } }.stack,
        set: stack.set,
        configurable: true,
    });

    const capture = Error.captureStackTrace;
    function captureStackTrace(target, above) {
        apply(capture, Error, [target, above === undefined ? captureStackTrace : above]);
        const own = getOwnPropertyDescriptor(target, 'stack');
        if (own !== undefined && own.configurable && 'value' in own) {
            own.value = withText(target, own.value);
            defineProperty(target, 'stack', own);
        }
    }
    defineProperty(Error, 'captureStackTrace',
        { value: captureStackTrace, writable: true, configurable: true });

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
