//! The modules that scripts import by a bare name: `import fs from 'fs'`, or `require('fs')` as
//! with njs's own engine.

use rquickjs::module::{Declarations, Declared, Exports, ModuleDef};
use rquickjs::{Ctx, Module, Object, Persistent, Result, Value};

use crate::{buffer, crypto, fs, native, querystring, state, xml, zlib};

/// A module of the server: its name, its exports beside `default`, and what makes the object that
/// is `default` and has the other exports as its properties.
trait Builtin {
    const EXPORTS: &'static [&'static str];
    fn make<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>>;
}

struct Of<T>(std::marker::PhantomData<T>);

impl<T: Builtin> ModuleDef for Of<T> {
    fn declare(declarations: &Declarations<'_>) -> Result<()> {
        declarations.declare("default")?;
        for name in T::EXPORTS {
            declarations.declare(*name)?;
        }
        Ok(())
    }

    fn evaluate<'js>(ctx: &Ctx<'js>, exports: &Exports<'js>) -> Result<()> {
        let object = T::make(ctx)?;
        for name in T::EXPORTS {
            exports.export(*name, object.get::<_, Value<'js>>(*name)?)?;
        }
        exports.export("default", object)?;
        Ok(())
    }
}

/// The object that `require()` returns: the same one each time.
fn object<'js, T: Builtin>(ctx: &Ctx<'js>, key: &'static str) -> Result<Object<'js>> {
    let state = state::of(ctx);
    if state.prototypes.borrow().contains_key(key) {
        return native::prototype_of(ctx, key);
    }
    let object = T::make(ctx)?;
    state.prototypes.borrow_mut().insert(key, Persistent::save(ctx, object.clone()));
    Ok(object)
}

macro_rules! builtins {
    ($($name:literal $type:ident $module:ident;)*) => {
        /// Whether an import means a module of the server.
        pub fn is(name: &str) -> bool {
            matches!(name, $($name)|*)
        }

        /// The module of that name.
        pub fn declare<'js>(ctx: &Ctx<'js>, name: &str) -> Result<Option<Module<'js, Declared>>> {
            match name {
                $($name => Module::declare_def::<Of<$type>, _>(ctx.clone(), $name).map(Some),)*
                _ => Ok(None),
            }
        }

        /// The object of the module of that name, for `require()`.
        pub fn require<'js>(ctx: &Ctx<'js>, name: &str) -> Result<Option<Object<'js>>> {
            match name {
                $($name => object::<$type>(ctx, concat!("weir:require:", $name)).map(Some),)*
                _ => Ok(None),
            }
        }

        $(
            struct $type;

            impl Builtin for $type {
                const EXPORTS: &'static [&'static str] = $module::EXPORTS;
                fn make<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
                    $module::module(ctx)
                }
            }
        )*
    };
}

builtins! {
    "buffer" Buffer buffer;
    "crypto" Crypto crypto;
    "fs" Fs fs;
    "querystring" QueryString querystring;
    "xml" Xml xml;
    "zlib" Zlib zlib;
}
