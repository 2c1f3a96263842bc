//! `health_check` and `match` while they are read, for engines whose checks ask `Q` and expect `M`.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use base::log::lossy;
use bytes::Bytes;
use conf::{ConfError, Node, Word};
use engine::settings::Conf;
use engine::{Cx, Session};
use event::Gate;

use super::{Checker, NotShared, Probe, Settings};
use crate::group::Group;

/// The question of an engine to servers, by its own parameters of `health_check`.
pub trait Ask: Default + 'static {
    /// Reads a parameter; false where it is none of the engine's.
    ///
    /// # Errors
    /// [`invalid`].
    fn parameter(&mut self, w: &Word) -> Result<bool, ConfError>;
}

/// The message for a parameter that is wrong.
pub fn invalid(w: &Word) -> ConfError {
    ConfError::at(w, format!("invalid parameter \"{}\"", w.lossy()))
}

/// The value of a parameter, as a word of its own.
pub fn value_of(w: &Word, value: &[u8]) -> Word {
    Word { text: w.text.slice_ref(value), ..w.clone() }
}

/// A `health_check`.
pub struct Check<Q> {
    /// The directive.
    pub at: Word,
    /// Rounds and verdicts.
    pub settings: Settings,
    /// The question to servers.
    pub asks: Q,
    matching: Option<Word>,
    /// The place's handler passes sessions to the upstream that is checked.
    used: Cell<bool>,
}

/// The `health_check` of a place; it is not inherited.
pub struct HealthConf<Q>(Option<Rc<Check<Q>>>);

// Not derived: `Q` need not have a default.
impl<Q> Default for HealthConf<Q> {
    fn default() -> HealthConf<Q> {
        HealthConf(None)
    }
}

impl<Q: 'static> Conf for HealthConf<Q> {}

/// `health_check [PARAMETER …]`
///
/// # Errors
/// `is duplicate`, `invalid parameter`, `persistent` without `mandatory`.
pub fn set_check<S: Session, Q: Ask>(cx: &mut Cx<S>, n: &Node) -> Result<Rc<Check<Q>>, ConfError> {
    if cx.loc::<HealthConf<Q>>().0.is_some() {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    let (mut asks, mut settings, mut matching) = (Q::default(), Settings::default(), None);
    for w in &n.args {
        match w.bytes().strip_prefix(b"match=") {
            Some(b"") => return Err(invalid(w)),
            Some(name) => matching = Some(value_of(w, name)),
            None if asks.parameter(w)? || settings.parameter(w)? => {}
            None => return Err(invalid(w)),
        }
    }
    settings.finish(n)?;
    let at = n.name.clone();
    let check = Rc::new(Check { at, settings, asks, matching, used: Cell::new(false) });
    cx.loc::<HealthConf<Q>>().0 = Some(check.clone());
    Ok(check)
}

impl<Q> HealthConf<Q> {
    /// The check, which is used from now on.
    pub fn used(&self) -> Option<Rc<Check<Q>>> {
        let check = self.0.clone()?;
        check.used.set(true);
        Some(check)
    }

    /// Refuses a check that nothing uses: it would never run. `what` says what the place has to do.
    ///
    /// # Errors
    /// It is not used.
    pub fn refuse_unused(&self, what: &str) -> Result<(), ConfError> {
        match &self.0 {
            Some(check) if !check.used.get() => {
                let m = format!(
                    "\"health_check\" requires that its {what} to an upstream without variables \
                     in its name"
                );
                Err(ConfError::at(&check.at, m))
            }
            _ => Ok(()),
        }
    }
}

/// All checks of a configuration, and the `match` blocks.
pub struct Checks<M> {
    matches: HashMap<Bytes, Rc<M>>,
    list: RefCell<Vec<Rc<Checker>>>,
}

// Not derived: `M` need not have a default.
impl<M> Default for Checks<M> {
    fn default() -> Checks<M> {
        Checks { matches: HashMap::new(), list: RefCell::default() }
    }
}

impl<M: 'static> Conf for Checks<M> {}

/// `match NAME { … }`
///
/// # Errors
/// The fault inside; `duplicate match`.
pub fn set_match<S: Session, M: 'static>(
    cx: &mut Cx<S>,
    n: &Node,
    parse: fn(&[Node]) -> Result<M, ConfError>,
) -> Result<(), ConfError> {
    let name = n.arg(0)?;
    let matching = Rc::new(parse(n.children())?);
    match cx.main::<Checks<M>>().matches.insert(name.text.clone(), matching) {
        Some(_) => Err(ConfError::at(name, format!("duplicate match \"{}\"", name.lossy()))),
        None => Ok(()),
    }
}

impl<M: Default> Checks<M> {
    /// The answer that a check of a group expects of a healthy server.
    ///
    /// # Errors
    /// The upstream has no zone; no such `match`.
    pub fn matching<Q>(&self, check: &Check<Q>, group: &Group) -> Result<Rc<M>, ConfError> {
        if !group.servers.is_shared() {
            return Err(not_shared(check, group));
        }
        let Some(w) = &check.matching else { return Ok(Rc::default()) };
        let found = self.matches.get(&w.text).cloned();
        found.ok_or_else(|| ConfError::at(w, format!("match \"{}\" not found", w.lossy())))
    }

    /// Adds the check of a group's servers.
    ///
    /// # Errors
    /// The upstream has no zone.
    pub fn add<Q>(
        &self,
        check: &Check<Q>,
        group: &Rc<Group>,
        probe: impl Probe + 'static,
    ) -> Result<(), ConfError> {
        let checker = Checker::new(check.settings.clone(), group, Box::new(probe));
        let checker = checker.map_err(|NotShared| not_shared(check, group))?;
        self.list.borrow_mut().push(checker);
        Ok(())
    }

    /// In a worker: begins to check, until the gate closes.
    pub fn start(&self, gate: &Gate) {
        self.list.borrow().iter().for_each(|checker| checker.start(gate));
    }
}

/// The message for a check of a group without a zone.
fn not_shared<Q>(check: &Check<Q>, group: &Group) -> ConfError {
    let upstream = lossy(&group.name);
    let m = format!("health_check requires upstream \"{upstream}\" to be in shared memory");
    ConfError::at(&check.at, m)
}
