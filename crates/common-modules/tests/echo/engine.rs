//! An engine made of the parts that engines have in common, and of nothing that is HTTP's: it
//! passes lines on to a group of servers and echoes their answers. Directives, variables, `map`,
//! access rules, a limit, an access log, balancing, a zone and health checks come from below.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;

use base::log::{Level, Log};
use bytes::Bytes;
use common_modules::access::AccessRules;
use common_modules::limits::conn::{self, ConnLimiter, ConnLimits, Count};
use common_modules::limits::{Zones, map_zones};
use common_modules::log::{self as access_log, AccessLog, AccessLogFiles, AccessLogs};
use common_modules::map;
use conf::table::{Args, Contexts as C, Directive, directive};
use conf::template::{Template, VarId, VarSource};
use engine::life::{Accepting, Life};
use engine::settings::{ConfSet, ConfType, Scope};
use engine::vars::{self, Values, VarDef, Variables};
use engine::{Client, Cx, LoadEnv, Module, Session, Stats};
use engine::{merge::Merged, module::Modules, regex::Captures};
use event::testing::until;
use event::{Accepted, Deadline, Listener, Sock};
use os::SockAddr;
use upstream::balance::{AnyPicker, ServerOutcome, least_conn};
use upstream::health::{Checked, Checker, Probe, Settings};
use upstream::lease::Lease;
use upstream::pool::UpConn;
use upstream::{Group, Upstreams, block::Block, directives as of_upstream};
use weir_common_modules as common_modules;

/// The engine's block, compiled.
pub struct Echo {
    vars: Rc<Variables<Line>>,
    confs: ConfSet,
    limiter: Option<ConnLimiter>,
    logs: Vec<Rc<AccessLog>>,
    pub group: Rc<Group>,
    stats: Rc<Stats>,
    metrics: Rc<engine::Metrics>,
    log: Log,
    life: Life,
    accepting: Accepting,
}

/// A session: one line of a client.
pub struct Line {
    echo: Rc<Echo>,
    peer: SockAddr,
    text: Vec<u8>,
    server: Bytes,
    values: Values,
    captures: Captures,
    shared: Vec<Rc<dyn Any>>,
}

impl VarSource for Line {
    fn value(&mut self, id: VarId) -> Option<Bytes> {
        vars::value(self, id)
    }
}

impl Client for Line {
    fn address(&self) -> &SockAddr {
        &self.peer
    }
    fn eval(&mut self, template: &Template) -> Bytes {
        template.eval(self)
    }
    fn logs(&self, level: Level) -> bool {
        self.echo.log.enabled(level)
    }
    fn log(&self, level: Level, message: fmt::Arguments<'_>) {
        self.echo.log.write(level, None, message);
    }
}

impl Session for Line {
    const BLOCK: C = C::STREAM;
    const SERVER: C = C::STREAM_SERVER;
    const UPSTREAM: C = C::STREAM_UPSTREAM;
    type Block = ();
    type Place = ();
    type Pipeline = ();
    type Main = Echo;
    fn variables(&self) -> &Rc<Variables<Line>> {
        &self.echo.vars
    }
    fn values(&self) -> &Values {
        &self.values
    }
    fn values_mut(&mut self) -> &mut Values {
        &mut self.values
    }
    fn captures(&self) -> &Captures {
        &self.captures
    }
    fn captures_mut(&mut self) -> &mut Captures {
        &mut self.captures
    }
    fn confs(&self) -> &ConfSet {
        &self.echo.confs
    }
    fn shared<T: Default + 'static>(&mut self) -> Rc<T> {
        engine::shared_in(&mut self.shared)
    }
    fn stats(&self) -> &Stats {
        &self.echo.stats
    }
    fn metrics(&self) -> &Rc<engine::Metrics> {
        &self.echo.metrics
    }
    fn debug(&self, _: fmt::Arguments<'_>) {}
    fn error_log(&self) -> &Log {
        &self.echo.log
    }
    fn connection(&self) -> u64 {
        1
    }
}

static DIRECTIVES: &[Directive<Cx<Line>>] = &[
    directive("server", C::STREAM, Args::BLOCK.or(Args::NONE), "", "", Cx::server_block),
    directive("allow", C::STREAM_SERVER, Args::T1, "", "", |cx, n| {
        cx.loc::<AccessRules>().add(n, true)
    }),
    directive("deny", C::STREAM_SERVER, Args::T1, "", "", |cx, n| {
        cx.loc::<AccessRules>().add(n, false)
    }),
    directive("limit_conn_zone", C::STREAM, Args::T2, "", "", conn::set_zone),
    directive("limit_conn", C::STREAM_SERVER, Args::T2, "", "", conn::set_limit),
    directive("log_format", C::STREAM, Args::TWO_MORE, "", "", access_log::log_format),
    directive("access_log", C::STREAM_SERVER, Args::ONE_MORE, "", "", access_log::access_log),
];

static MAP: Module<Line> = map::module();

static UPSTREAM: Module<Line> =
    Module { name: "upstream", directives: &of_upstream::directives(), ..Module::EMPTY };

static LEAST_CONN: Module<Line> = least_conn::module();

static ECHO: Module<Line> = Module {
    name: "echo",
    directives: DIRECTIVES,
    variables: &[
        VarDef::new("line", |s, out| {
            out.extend_from_slice(&s.text);
            true
        }),
        VarDef::new("server", |s, out| {
            out.extend_from_slice(&s.server);
            true
        }),
    ],
    confs: &[
        ConfType::of::<AccessRules>(Scope::Server),
        ConfType::of::<Zones<Count>>(Scope::Main),
        ConfType::of::<ConnLimits>(Scope::Server),
        ConfType::of::<AccessLogFiles>(Scope::Main),
        ConfType::of::<AccessLogs>(Scope::Server),
        ConfType::of::<Upstreams>(Scope::Main),
        ConfType::of::<Block>(Scope::Server),
    ],
    init: Some(|cx| of_upstream::make_groups(cx).and_then(|()| map_zones::<Line, Count>(cx))),
    ..Module::EMPTY
};

static MODULES: Modules<Line> = &[&MAP, &UPSTREAM, &LEAST_CONN, &ECHO];

/// A server is healthy that accepts connections.
struct Connects;

impl Probe for Connects {
    fn ask<'a>(
        &'a self,
        addr: &'a SockAddr,
        _: Option<UpConn>,
    ) -> Pin<Box<dyn Future<Output = Checked> + 'a>> {
        Box::pin(async {
            let connected = event::testing::connect(addr).await;
            connected.map(|_| None).map_err(|e| e.to_string())
        })
    }
}

/// Loads an `echo` block; `prefix` is the folder of its logs.
pub fn load(text: &str, prefix: &Path, log: &Log) -> Rc<Echo> {
    let text = Bytes::from(format!("echo {{ {text} }}"));
    let options = conf::parse::Options::default();
    let tree = conf::parse::parse_bytes(Path::new("echo.conf"), text, &options).unwrap();
    let env = LoadEnv::alone(prefix, log.clone()).unwrap();
    let mut applied = match engine::cx::apply(&tree.nodes[0], env, MODULES) {
        Ok(applied) => applied,
        Err(e) => panic!("{e}"),
    };
    let top = Merged::top(MODULES, &applied.top);
    let confs = top.below(MODULES, &mut applied.servers[0].0).unwrap().set;
    applied.env.logs.open_all().unwrap();
    let upstreams = confs.get::<Upstreams>().unwrap();
    let group = upstreams.named().next().unwrap().clone();
    let logs = confs.get::<AccessLogs>().unwrap().all(confs.get().unwrap(), None);
    let limiter = confs.get::<ConnLimits>().unwrap().limiter();
    Rc::new(Echo {
        vars: Rc::new(applied.vars),
        confs,
        limiter,
        logs,
        group,
        stats: applied.env.stats,
        metrics: applied.env.metrics,
        log: log.clone(),
        life: Life::default(),
        accepting: Accepting::default(),
    })
}

/// Begins to serve and to check the servers' health.
pub fn start(echo: &Rc<Echo>, listeners: Vec<Listener>) {
    let settings = Settings { interval_ms: 20, ..Settings::default() };
    let checker = Checker::new(settings, &echo.group, Box::new(Connects)).unwrap();
    checker.start(&echo.life.gate);
    let engine = echo.clone();
    echo.accepting.begin(listeners, move |_, accepted| {
        event::spawn(serve(engine.clone(), accepted));
    });
}

/// Leaves: accepts no more, and ends when the lines under way are answered and logged.
pub async fn quit(echo: &Rc<Echo>) {
    echo.accepting.end(|_, _| ());
    echo.life.gate.close();
    until(|| echo.life.active() == 0).await;
    for log in &echo.logs {
        log.settled().await;
    }
}

/// Reads up to a line feed, which is not given.
pub async fn read_line(sock: &Sock) -> Vec<u8> {
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') {
        let page = sock.recv(1, Deadline::in_ms(10_000)).await.unwrap();
        if page.filled().is_empty() {
            break;
        }
        line.extend_from_slice(page.filled());
    }
    line.pop();
    line
}

pub async fn write_line(sock: &Sock, line: &[u8]) {
    let mut chain = mem::Chain::new();
    chain.write(line);
    chain.write(b"\n");
    let _ = sock.send(&mut chain, Deadline::in_ms(10_000)).await;
}

async fn serve(echo: Rc<Echo>, accepted: Accepted) {
    let _work = echo.life.work();
    let text = read_line(&accepted.sock).await;
    let mut s = Line {
        echo: echo.clone(),
        peer: accepted.addr,
        text,
        server: Bytes::new(),
        values: Values::default(),
        captures: Captures::default(),
        shared: Vec::new(),
    };
    write_line(&accepted.sock, &answer(&echo, &mut s).await).await;
    echo.logs.iter().for_each(|log| log.write(&mut s, true, None, |_, _| None));
}

async fn answer(echo: &Echo, s: &mut Line) -> Vec<u8> {
    if echo.confs.get::<AccessRules>().unwrap().allows(s.address()) == Some(false) {
        return b"forbidden".to_vec();
    }
    if !echo.limiter.as_ref().is_none_or(|limiter| limiter.admit(s)) {
        return b"busy".to_vec();
    }
    let mut lease = Lease::new(AnyPicker::begin(echo.group.balancer.as_ref(), s), None);
    while let Some(server) = lease.take_next(s) {
        let Ok(sock) = event::testing::connect(&server.spec.addr).await else {
            lease.done(ServerOutcome::Failed);
            continue;
        };
        s.server = server.name.clone();
        write_line(&sock, &s.text).await;
        return read_line(&sock).await;
    }
    b"no live server".to_vec()
}
