//! A client: some requests, one after the other, and their permitted results.

use std::collections::BTreeMap;

use os::SockAddr;

use super::asking::{Answer, Conn, told_of};
use super::{BIG, Ending, Scenario, pattern};
use crate::simulation::Chance;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    Put,
    Delete,
    DeleteTree,
    MakeFolder,
    Copy,
    CopyTree,
    Move,
    Echo,
    /// A body that stops coming.
    HalfBody,
    Big,
    Listed,
    Held,
    HeldMissing,
    Tried,
    Copied,
    Threads,
    Small,
}

const ALL: [What; 17] = [
    What::Put,
    What::Delete,
    What::DeleteTree,
    What::MakeFolder,
    What::Copy,
    What::CopyTree,
    What::Move,
    What::Echo,
    What::HalfBody,
    What::Big,
    What::Listed,
    What::Held,
    What::HeldMissing,
    What::Tried,
    What::Copied,
    What::Threads,
    What::Small,
];

/// A request and what it does if all goes well.
struct Plan {
    what: What,
    method: &'static str,
    path: String,
    fields: String,
    body: Vec<u8>,
    /// Bytes of the body that are not sent.
    held_back: usize,
    status: u16,
    answer: Option<Vec<u8>>,
    /// Files that it changes, and their content afterwards.
    changes: BTreeMap<String, Option<Vec<u8>>>,
}

/// A client's own files, as they must be now.
struct Files<'a> {
    scenario: &'a Scenario,
    number: u64,
}

impl Files<'_> {
    fn path(&self, name: &str) -> String {
        format!("dav/{}/{name}", self.number)
    }

    fn get(&self, name: &str) -> Option<Vec<u8>> {
        let may = self.scenario.may.borrow();
        may.get(&self.path(name)).and_then(|may| may[0].clone())
    }

    /// Says whether the content of all of them is known.
    fn are_certain(&self) -> bool {
        let own = self.path("");
        let may = self.scenario.may.borrow();
        may.iter().all(|(path, may)| !path.starts_with(&own) || may.len() == 1)
    }

    /// A request is under way.
    fn may_change(&self, plan: &Plan) {
        let mut all = self.scenario.may.borrow_mut();
        for (name, content) in &plan.changes {
            let may = all.entry(self.path(name)).or_insert_with(|| vec![None]);
            may.push(content.clone());
            // The tree that was there before goes first.
            if plan.what == What::CopyTree {
                may.push(None);
            }
        }
    }

    /// It was done.
    fn changed(&self, changes: BTreeMap<String, Option<Vec<u8>>>) {
        let mut all = self.scenario.may.borrow_mut();
        all.extend(changes.into_iter().map(|(name, content)| (self.path(&name), vec![content])));
    }

    fn plan(&self, what: What, chance: &mut Chance) -> Plan {
        let own = |name: &str| format!("/{}", self.path(name));
        let mut plan = Plan {
            what,
            method: "GET",
            path: "/small.txt".to_owned(),
            fields: String::new(),
            body: Vec::new(),
            held_back: 0,
            status: 200,
            answer: None,
            changes: BTreeMap::new(),
        };
        match what {
            What::Put => {
                let name = ["a", "b", "new/c"][chance.below(3) as usize];
                plan.body = pattern(chance.below(30_000) as usize, chance.below(200));
                (plan.method, plan.path) = ("PUT", own(name));
                plan.status = if self.get(name).is_some() { 204 } else { 201 };
                plan.changes.insert(name.to_owned(), Some(plan.body.clone()));
            }
            What::Delete => {
                let name = ["a", "b"][chance.below(2) as usize];
                (plan.method, plan.path) = ("DELETE", own(name));
                plan.status = if self.get(name).is_some() { 204 } else { 404 };
                plan.changes.insert(name.to_owned(), None);
            }
            What::DeleteTree => {
                (plan.method, plan.path) = ("DELETE", own("tree/"));
                plan.status = if self.get("tree/x").is_some() { 204 } else { 404 };
                plan.changes.insert("tree/x".to_owned(), None);
                plan.changes.insert("tree/deep/y".to_owned(), None);
            }
            What::MakeFolder => {
                // A number makes each new folder unique: it need not be tracked.
                let name = format!("made{}/", chance.below(u64::MAX));
                (plan.method, plan.path, plan.status) = ("MKCOL", own(&name), 201);
            }
            What::Copy | What::Move => {
                plan.method = if what == What::Copy { "COPY" } else { "MOVE" };
                plan.path = own("a");
                plan.fields = format!("Destination: {}\r\n", own("b"));
                match self.get("a") {
                    Some(content) => {
                        plan.status = 204;
                        plan.changes.insert("b".to_owned(), Some(content));
                        if what == What::Move {
                            plan.changes.insert("a".to_owned(), None);
                        }
                    }
                    None => plan.status = 404,
                }
            }
            What::CopyTree => {
                (plan.method, plan.path) = ("COPY", own("tree/"));
                plan.fields = format!("Destination: {}\r\n", own("twin/"));
                match (self.get("tree/x"), self.get("tree/deep/y")) {
                    (Some(x), Some(y)) => {
                        plan.status = 201;
                        plan.changes.insert("twin/x".to_owned(), Some(x));
                        plan.changes.insert("twin/deep/y".to_owned(), Some(y));
                    }
                    _ => plan.status = 404,
                }
            }
            What::Echo | What::HalfBody => {
                plan.body = pattern(2_000 + chance.below(30_000) as usize, chance.below(200));
                (plan.method, plan.path) = ("POST", "/echo".to_owned());
                plan.answer = Some(told_of(&plan.body));
                if what == What::HalfBody {
                    plan.held_back = 1 + chance.below(500) as usize;
                }
            }
            What::Big => {
                plan.path = "/big".to_owned();
                plan.answer = Some(pattern(BIG, 1));
            }
            What::Listed => plan.path = "/listed/".to_owned(),
            What::HeldMissing => (plan.path, plan.status) = ("/held/none".to_owned(), 404),
            What::Held | What::Tried | What::Small => {
                plan.path = match what {
                    What::Held => "/held/small.txt",
                    What::Tried => "/tried/x",
                    _ => "/small.txt",
                }
                .to_owned();
                plan.answer = Some(b"a small file".to_vec());
            }
            What::Copied | What::Threads => {
                let place = if what == What::Copied { "copied" } else { "threads" };
                plan.path = format!("/{place}/large.bin");
                plan.answer = Some(pattern(100_000, 9));
            }
        }
        plan
    }
}

/// Asks for one thing after the other. `server` says where.
pub async fn work(scenario: &Scenario, number: u64, server: impl Fn() -> SockAddr) {
    let mut chance = Chance::new(scenario.seed * 1000 + number + 1);
    let files = Files { scenario, number };
    let mut conn = None;
    for request in 0..3 + chance.below(6) {
        // Files of unknown content cannot be checked: such clients only read from now on.
        let certain = files.are_certain();
        let first = if certain { 0 } else { 7 };
        let what = ALL[first + chance.below((ALL.len() - first) as u64) as usize];
        let id = number * 100 + request;
        let plan = files.plan(what, &mut chance);
        if conn.is_none() {
            conn = Conn::open(&server()).await;
        }
        let Some(own) = conn.as_mut() else {
            assert!(!scenario.world.steady || scenario.leaving.get(), "no connection");
            return;
        };
        scenario.asked.borrow_mut().insert(id, None);
        // Until there is an answer.
        files.may_change(&plan);
        let answer = exchange(scenario, own, id, &plan, &mut chance).await;
        let Some((answer, kept)) = answer else {
            // It left in the middle.
            conn = None;
            continue;
        };
        check(scenario, &files, id, plan, answer);
        if !kept {
            conn = None;
        }
        event::sleep(chance.below(3_000)).await;
    }
}

/// One request and its answer; `None` where the client did not wait for it.
async fn exchange(
    scenario: &Scenario,
    conn: &mut Conn,
    id: u64,
    plan: &Plan,
    chance: &mut Chance,
) -> Option<(Answer, bool)> {
    let Plan { method, path, fields, body, .. } = plan;
    let length = match body.len() {
        0 if *method != "PUT" => String::new(),
        len => format!("Content-Length: {len}\r\n"),
    };
    let head = format!("{method} {path} HTTP/1.1\r\nHost: a\r\nN: {id}\r\n{fields}{length}\r\n");
    let mut bytes = head.into_bytes();
    bytes.extend_from_slice(&body[..body.len() - plan.held_back]);
    let _sending = conn.send(bytes);
    // Some do not read for longer than the server waits for them.
    let pause = (plan.what == What::Big && chance.below(4) == 0).then_some(60_000);
    let stays = scenario.world.steady || chance.below(3) > 0;
    let leaves_after_ms = if stays { u64::MAX >> 1 } else { chance.below(4_000) };
    event::timeout(leaves_after_ms, conn.answer(pause)).await.ok()
}

fn check(scenario: &Scenario, files: &Files<'_>, id: u64, plan: Plan, answer: Answer) {
    let Plan { what, status, changes, .. } = plan;
    let told = match &answer {
        Answer::Whole(status, _) => Some(*status),
        Answer::Cut(status) => *status,
    };
    if told.is_some() {
        scenario.asked.borrow_mut().insert(id, told);
    }
    let goes = scenario.world.ending == Ending::Replace || scenario.leaving.get();
    // A failing disk may have hidden that there was a file before.
    let same = |got| got == status || scenario.fails() && (got, status) == (201, 204);
    match answer {
        Answer::Whole(got, body) if same(got) => {
            if let Some(want) = plan.answer {
                assert!(body == want, "{what:?} {id}: {} of {} bytes", body.len(), want.len());
            }
            if what == What::Listed {
                assert!(memchr::memmem::find(&body, b"large.bin").is_some() || scenario.fails());
            }
            files.changed(changes);
        }
        Answer::Whole(got, _) => {
            let half = what == What::HalfBody && got == 408;
            let failed = scenario.fails() && matches!(got, 403 | 404 | 500 | 502 | 504 | 507);
            let broke = !scenario.world.steady && matches!(got, 400 | 502 | 504);
            assert!(half || failed || broke, "{what:?} {id}: {got} in place of {status}");
        }
        Answer::Cut(told) => {
            // By the disk, the client's own slowness, or a server that goes: that one answers what
            // has reached it, unless the connection had rested.
            let expected = !scenario.world.steady
                || scenario.fails()
                || matches!(what, What::HalfBody | What::Big)
                || told.is_none() && goes;
            assert!(expected, "{what:?} {id} was cut");
        }
    }
}
