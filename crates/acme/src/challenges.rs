//! Challenges: publishes the responses, asks the server to validate them, and removes them
//! afterwards.

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use base::log;
use base::log::{Level, Log};
use pki::issue::{Key, KeyKind, sha256};
use pki::pem::Secret;
use proto::acme::{
    Authorization, AuthorizationStatus, Challenge, ChallengeStatus, Identifier, key_authorization,
};

use crate::board::Board;
use crate::folder::Folder;
use crate::issuer::{Issuer, Order, Proof};
use crate::ordering::Pause;
use crate::program;
use crate::session::{Session, Trouble};
use crate::zone::Answer;

/// The time limit for the program of a dns-01 challenge.
const PROGRAM_MAX: Duration = Duration::from_secs(300);

/// The removal of a record is tried so often: a program may have removed it, and fail since then.
pub(crate) const TRIES_MAX: u32 = 5;

/// What an order needs to respond to challenges.
#[derive(Clone, Copy)]
pub(crate) struct Stage<'a> {
    pub issuer: &'a Rc<Issuer>,
    pub board: &'a Board,
    pub folder: &'a Folder,
    pub log: &'a Log,
}

/// A TXT record of a dns-01 challenge.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Record {
    /// The name to be proven.
    name: String,
    /// The key authorization.
    text: String,
}

impl Record {
    /// The records in a file of challenge responses, and how often their removal was tried.
    fn all(file: &str) -> Vec<(Record, u32)> {
        let one = |line: &str| {
            let mut words = line.strip_prefix("dns-01 ")?.split(' ');
            let (name, text) = (words.next()?.to_owned(), words.next()?.to_owned());
            let tries = words.next().and_then(|tries| tries.parse().ok()).unwrap_or(0);
            Some((Record { name, text }, tries))
        };
        file.lines().filter_map(one).collect()
    }

    /// Its line in the file.
    fn line(&self, tries: u32) -> String {
        let Record { name, text } = self;
        match tries {
            0 => format!("dns-01 {name} {text}\n"),
            tries => format!("dns-01 {name} {text} {tries}\n"),
        }
    }

    /// The name of the record (RFC 8555 section 8.4).
    fn host(&self) -> String {
        format!("_acme-challenge.{}.", self.name)
    }

    /// Its value: the SHA-256 of the key authorization in base64url.
    fn value(&self) -> String {
        let mut out = Vec::new();
        base::base64::encode_url(&sha256(self.text.as_bytes()), &mut out);
        String::from_utf8_lossy(&out).into_owned()
    }
}

/// A challenge in progress.
struct Begun {
    /// The URL of its authorization.
    url: String,
    /// The name or address to be proven.
    name: Identifier,
    challenge: Challenge,
    text: String,
}

impl Begun {
    /// Its line in the file of challenge responses.
    fn line(&self) -> String {
        format!("{} {} {}\n", self.challenge.kind, self.name, self.text)
    }

    fn record(&self) -> Record {
        Record { name: self.name.to_string(), text: self.text.clone() }
    }
}

/// The file of an order's challenge responses.
fn file_of(order: &str) -> String {
    format!("{order}.challenges")
}

/// Completes the pending authorizations at `urls`. Returns once all are valid; the responses are
/// withdrawn in any case.
pub(crate) async fn answer(
    stage: &Stage<'_>,
    session: &Session,
    order: &Order,
    urls: &[String],
) -> Result<(), Trouble> {
    // With tls-alpn-01 the validator only sends the name, so two orders for one name must not
    // overlap.
    let _claim = match stage.issuer.proof {
        Proof::Alpn => Some(stage.board.claim(&order.names).await),
        Proof::Http | Proof::Dns(_) => None,
    };
    let mut begun = Vec::new();
    for url in urls {
        let reply = session.call(url, None).await?;
        let authorization = Authorization::parse(&reply.body)?;
        match authorization.status {
            AuthorizationStatus::Valid => {}
            AuthorizationStatus::Invalid => return Err(why_invalid(&authorization)),
            AuthorizationStatus::Pending => {
                begun.push(choose(stage.issuer, session, url, &authorization)?);
            }
        }
    }
    if begun.is_empty() {
        return Ok(());
    }
    let file = file_of(&order.id);
    let text: String = begun.iter().map(Begun::line).collect();
    let mut shown = Vec::new();
    let done = async {
        if let Proof::Dns(program) = &stage.issuer.proof {
            note_records(stage, &file, &text).await;
            for one in &begun {
                run(program, "present", &one.record()).await?;
            }
        } else {
            shown = answers(&text)?;
            stage.board.add_answers(shown.clone());
            if stage.folder.is_kept() {
                stage.folder.write(&file, text.as_bytes());
                stage.folder.spread().await;
            }
        }
        prove(session, &begun).await
    }
    .await;
    stage.board.remove_answers(&shown);
    match &stage.issuer.proof {
        Proof::Dns(_) => withdraw(stage, &order.id, TRIES_MAX).await,
        Proof::Http | Proof::Alpn => stage.folder.remove(&file),
    }
    done
}

/// Writes down which TXT records are about to be made, before they are: if this work is broken off,
/// because the process is killed or another server leads, whoever leads next removes them.
async fn note_records(stage: &Stage<'_>, file: &str, text: &str) {
    let before = stage.folder.read(file).unwrap_or_default();
    let mut left = Record::all(&String::from_utf8_lossy(&before));
    let new = Record::all(text);
    left.retain(|(record, _)| !new.iter().any(|(one, _)| one == record));
    let all: String = left.iter().chain(&new).map(|(record, tries)| record.line(*tries)).collect();
    stage.folder.write(file, all.as_bytes());
    stage.folder.settle().await;
}

/// Removes the TXT records that were made for an order, by this process or by one that was broken
/// off, and whose removal was tried less than `below` times. Those that the program cannot remove
/// stay in the file for the next time.
pub(crate) async fn withdraw(stage: &Stage<'_>, order: &str, below: u32) {
    let (file, issuer) = (file_of(order), stage.issuer);
    let Proof::Dns(program) = &issuer.proof else { return };
    let read = || {
        let text = stage.folder.read(&file)?;
        Some(Record::all(&String::from_utf8_lossy(&text)))
    };
    let Some(all) = read() else { return };
    for (record, tries) in all.into_iter().filter(|(_, tries)| *tries < below) {
        // Noted before, because this work may be broken off by a program that hangs.
        let tries = tries.saturating_add(1);
        note_tries(stage, &file, &record, tries);
        let m = match run(program, "cleanup", &record).await {
            Err(trouble) if tries < TRIES_MAX => trouble.message,
            Err(trouble) => {
                note_tries(stage, &file, &record, 0);
                format!("{}, which is not tried again after {tries} times", trouble.message)
            }
            Ok(()) => {
                note_tries(stage, &file, &record, 0);
                continue;
            }
        };
        let m = format_args!("acme: {m}, issuer: \"{}\"", issuer.name);
        log!(stage.log, Level::Warn, None, "{m}");
    }
    if read().is_some_and(|left| left.is_empty()) {
        stage.folder.remove(&file);
    }
}

/// Writes down how often the removal of a record was tried; with 0, it is removed from the file.
fn note_tries(stage: &Stage<'_>, file: &str, record: &Record, tries: u32) {
    let Some(before) = stage.folder.read(file) else { return };
    let mut all = Record::all(&String::from_utf8_lossy(&before));
    all.iter_mut().filter(|(one, _)| one == record).for_each(|(_, of)| *of = tries);
    if tries == 0 {
        all.retain(|(one, _)| one != record);
    }
    let text: String = all.iter().map(|(record, tries)| record.line(*tries)).collect();
    stage.folder.write(file, text.as_bytes());
}

/// Parses a file of challenge responses: lines of `TYPE NAME KEY-AUTHORIZATION`. Other hosts read
/// these files, and so does a restarted process. Creates the certificates for tls-alpn-01.
pub(crate) fn answers(text: &str) -> Result<Vec<Answer>, pki::issue::Error> {
    let mut found = Vec::new();
    for line in text.lines() {
        let mut words = line.split(' ');
        let (Some(kind), Some(name), Some(text)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let token = text.split('.').next().unwrap_or_default();
        match kind {
            "http-01" => found.push(Answer {
                name: token.to_owned(),
                text: text.as_bytes().to_vec(),
                private: Secret::default(),
            }),
            "tls-alpn-01" => {
                let parsed = Identifier::parse(name.as_bytes()).unwrap_or_default();
                let [name] = &parsed[..] else { continue };
                let key = Key::generate(KeyKind::Ecdsa(256))?;
                found.push(Answer {
                    name: name.server_name(),
                    text: key.challenge_certificate(name, text)?,
                    private: key.to_pem(),
                });
            }
            _ => {}
        }
    }
    Ok(found)
}

/// Selects the challenge of the configured type in an authorization.
fn choose(
    issuer: &Issuer,
    session: &Session,
    url: &str,
    authorization: &Authorization,
) -> Result<Begun, Trouble> {
    let name = &authorization.name;
    let kind = issuer.proof.kind();
    let Some(challenge) = authorization.challenge(kind) else {
        let m = format!("the server offers no challenge {kind} for \"{name}\"");
        return Err(Trouble::permanent(m));
    };
    if challenge.token.is_empty() {
        return Err(Trouble::new(format!("the challenge for \"{name}\" has no token")));
    }
    let parsed = Identifier::parse(name.as_bytes()).unwrap_or_default();
    let [parsed] = &parsed[..] else {
        return Err(Trouble::new(format!("the server authorizes \"{name}\", which is no name")));
    };
    Ok(Begun {
        url: url.to_owned(),
        name: parsed.clone(),
        text: key_authorization(&challenge.token, &*session.key),
        challenge: challenge.clone(),
    })
}

/// The error of an invalid authorization, from the challenge that failed.
fn why_invalid(authorization: &Authorization) -> Trouble {
    let problem = authorization.challenges.iter().find_map(|challenge| challenge.error.clone());
    let trouble = problem.map_or_else(|| Trouble::new("authorization failed"), Trouble::from);
    trouble.during(&format!("authorization of \"{}\"", authorization.name))
}

/// Requests validation of all challenges and waits for its result.
async fn prove(session: &Session, begun: &[Begun]) -> Result<(), Trouble> {
    for one in begun.iter().filter(|one| one.challenge.status == ChallengeStatus::Pending) {
        session.call(&one.challenge.url, Some("{}")).await?;
    }
    let mut pause = Pause::new();
    for one in begun {
        loop {
            let reply = session.call(&one.url, None).await?;
            let authorization = Authorization::parse(&reply.body)?;
            match authorization.status {
                AuthorizationStatus::Valid => break,
                AuthorizationStatus::Invalid => return Err(why_invalid(&authorization)),
                AuthorizationStatus::Pending => {}
            }
            if !pause.wait(reply.retry_after).await {
                let m = format!("the server does not come to an end with \"{}\"", one.name);
                return Err(Trouble::new(m));
            }
        }
    }
    Ok(())
}

/// Runs the program of a dns-01 challenge: `PROGRAM present|cleanup NAME VALUE`. Fails if it exits
/// with an error or exceeds the time limit. It ends with this work.
async fn run(program: &Path, verb: &'static str, record: &Record) -> Result<(), Trouble> {
    let args = [verb.to_owned(), record.host(), record.value()];
    let ran = program::run(program, args, PROGRAM_MAX).await;
    ran.map_err(|why| {
        let program = program.display();
        Trouble::new(format!("\"{program} {verb}\" for \"{}\" failed: {why}", record.name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::tests::Scratch;
    use crate::keep::tests::issuer;
    use crate::zone::Shared;

    #[test]
    fn files_of_challenges() {
        let text = "http-01 a.test tok-1.print\ntls-alpn-01 192.0.2.1 tok-2.print\n\
                    dns-01 a.test x.y\nbroken\ntls-alpn-01 \u{e4} x.y\n";
        let found = answers(text).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!((&*found[0].name, &found[0].text[..]), ("tok-1", &b"tok-1.print"[..]));
        assert_eq!(found[1].name, "1.2.0.192.in-addr.arpa");
        assert!(tls::certified::Certified::from_pem(&found[1].text, &found[1].private).is_ok());
        let record = Record { name: "a.test".to_owned(), text: "x.y".to_owned() };
        assert_eq!(record.host(), "_acme-challenge.a.test.");
        assert_eq!(Record::all(text), [(record.clone(), 0)]);
        assert_eq!(Record::all(&record.line(3)), [(record, 3)]);
    }

    /// A program that fails for one of two records.
    #[test]
    fn records_that_cannot_be_removed_stay_for_some_tries() {
        let event_loop = event::Loop::new(event::Options::default());
        let ran = event_loop.unwrap().block_on(async {
            let scratch = Scratch::new("tries");
            let below = testkit::Folder::new("tries-program");
            let (program, calls) = (below.join("dns.sh"), below.join("calls"));
            let script = format!(
                "#!/bin/sh\necho \"$1 $2\" >> {}\ntest $2 != _acme-challenge.bad.test.\n",
                calls.display()
            );
            testkit::write_script(&program, &script);
            let (log, lines) = base::log::capture(Level::Info);
            let mut issuer = issuer(&scratch.0, 1);
            Rc::get_mut(&mut issuer).unwrap().proof = Proof::Dns(program);
            let board = Board::new(&Rc::new(Shared::of_tests()), &[], &log);
            let folder = Folder::new(Some(&scratch.0), "one", &log);
            folder.prepare();
            let stage = Stage { issuer: &issuer, board: &board, folder: &folder, log: &log };
            let file = file_of("id");
            folder.write(&file, b"dns-01 bad.test x.y\ndns-01 good.test x.z\n");
            for tries in 1..TRIES_MAX {
                withdraw(&stage, "id", TRIES_MAX).await;
                let left = folder.read(&file).unwrap();
                assert_eq!(left[..], *format!("dns-01 bad.test x.y {tries}\n").as_bytes());
            }
            withdraw(&stage, "id", TRIES_MAX).await;
            assert!(folder.read(&file).is_none());
            let told = lines.take();
            assert_eq!(told.lines().count(), TRIES_MAX as usize, "{told}");
            assert!(told.contains("is not tried again after 5 times"), "{told}");
            let calls = std::fs::read_to_string(calls).unwrap();
            let good = "cleanup _acme-challenge.good.test.";
            assert_eq!(calls.lines().filter(|line| *line == good).count(), 1, "{calls}");
            folder.write(&file, b"dns-01 bad.test x.y 1\n");
            withdraw(&stage, "id", 1).await;
            assert_eq!(folder.read(&file).unwrap()[..], *b"dns-01 bad.test x.y 1\n");
            // What was made again counts from the begin.
            folder.write(&file, b"dns-01 bad.test x.y 3\n");
            note_records(&stage, &file, "dns-01 bad.test x.y\n").await;
            assert_eq!(folder.read(&file).unwrap()[..], *b"dns-01 bad.test x.y\n");
        });
        ran.unwrap();
    }
}
