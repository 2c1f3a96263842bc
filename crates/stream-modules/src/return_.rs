//! `return`: answers a session with a text, and ends it.

use base::future::boxed;
use conf::ConfError;
use conf::table::directive;
use conf::table::{Args, Contexts as C, Directive};
use conf::template::Template;
use engine::Client;
use engine::settings::Conf;
use stream::module::set_content;
use stream::module::{Content, Served};
use stream::{Cx, Module, Pipeline, StreamSession, View, content};

/// The module's table.
pub static MODULE: Module = Module::of::<Return>("return", DIRECTIVES, install);

static DIRECTIVES: &[Directive<Cx>] = &[directive(
    "return",
    C::STREAM_SERVER,
    Args::T1,
    "",
    "Sends a text to the client and closes the session.",
    |cx, n| {
        set_content(cx, n, "return")?;
        cx.set_template(n, |conf: &mut Return| &mut conf.text)
    },
)];

#[derive(Default)]
struct Return {
    text: Option<Template>,
}

impl Conf for Return {}

struct Text(Template);

impl Content for Text {
    fn serve<'a>(&'a self, s: &'a mut StreamSession) -> Served<'a> {
        boxed(|| async {
            let text = s.eval(&self.0);
            content::answer(s, text).await
        })
    }
}

fn install(view: &View<'_>, p: &mut Pipeline) -> Result<(), ConfError> {
    if view.info.content == "return"
        && let Some(text) = &view.conf::<Return>().text
    {
        p.content = Some(Box::new(Text(text.clone())));
    }
    Ok(())
}
