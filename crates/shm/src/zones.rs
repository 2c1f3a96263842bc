//! The shared zones of a configuration by name, and those of them that a reload keeps.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

/// The contents of a zone.
pub trait ZoneState: Any {
    /// In the master: a process has died. Frees its locks and releases its holds.
    fn died(&self, pid: u32, slot: usize);

    /// In the master: all workers have ended, and the master is about to. Saves what is to outlive
    /// the server.
    fn stopped(&self) {}

    /// The units in use and in all; `None` where that is not known.
    fn fill(&self) -> Option<Fill> {
        None
    }
}

/// The units of a zone in use and in all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fill {
    /// Units in use.
    pub used: usize,
    /// Units in all.
    pub capacity: usize,
}

/// A zone, for those who show its state.
#[derive(Clone, Debug)]
pub struct ZoneReport {
    /// Its name.
    pub name: Vec<u8>,
    /// The directive family that uses it.
    pub user: &'static str,
    /// Its size.
    pub bytes: usize,
    /// The units in use and in all.
    pub fill: Fill,
}

struct Zone {
    name: Vec<u8>,
    /// The directive family that uses the zone.
    user: &'static str,
    /// 0 until a directive gives the size.
    bytes: usize,
    state: Option<Rc<dyn ZoneState>>,
}

/// The zones of one configuration; during a load, those of the previous one, too.
#[derive(Default)]
pub struct Zones {
    declared: RefCell<Vec<Zone>>,
    before: RefCell<Vec<Zone>>,
}

/// Why a zone cannot be declared, in nginx's words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ZoneConflict {
    /// Another directive has taken the name for something else.
    OtherUse(Vec<u8>),
    /// It was given another size before.
    OtherSize {
        /// The zone's name.
        name: Vec<u8>,
        /// The size in the configuration, in bytes.
        asked: usize,
        /// The size in use, in bytes.
        bytes: usize,
    },
}

impl fmt::Display for ZoneConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ZoneConflict::OtherUse(name) => {
                let name = String::from_utf8_lossy(name);
                write!(
                    f,
                    "the shared memory zone \"{name}\" is already declared for a different use"
                )
            }
            ZoneConflict::OtherSize { name, asked, bytes } => {
                let name = String::from_utf8_lossy(name);
                write!(
                    f,
                    "the size {asked} of shared memory zone \"{name}\" conflicts with already \
                     declared size {bytes}"
                )
            }
        }
    }
}

impl Zones {
    /// The registry for a configuration that takes the place of the one with `running`.
    pub fn after(running: &Zones) -> Zones {
        let running = running.declared.borrow();
        let kept = running.iter().map(|zone| Zone {
            name: zone.name.clone(),
            user: zone.user,
            bytes: zone.bytes,
            state: zone.state.clone(),
        });
        Zones { declared: RefCell::default(), before: RefCell::new(kept.collect()) }
    }

    /// Declares a zone with its size in bytes, or refers to one that is declared elsewhere
    /// (`None`).
    ///
    /// # Errors
    /// The name is another user's, or has another size.
    pub fn declare(
        &self,
        name: &[u8],
        bytes: Option<usize>,
        user: &'static str,
    ) -> Result<(), ZoneConflict> {
        let mut declared = self.declared.borrow_mut();
        let Some(zone) = declared.iter_mut().find(|zone| zone.name == name) else {
            let bytes = bytes.unwrap_or(0);
            declared.push(Zone { name: name.to_vec(), user, bytes, state: None });
            return Ok(());
        };
        if zone.user != user {
            return Err(ZoneConflict::OtherUse(name.to_vec()));
        }
        match bytes {
            Some(asked) if zone.bytes == 0 => zone.bytes = asked,
            Some(asked) if zone.bytes != asked => {
                let (name, bytes) = (name.to_vec(), zone.bytes);
                return Err(ZoneConflict::OtherSize { name, asked, bytes });
            }
            _ => {}
        }
        Ok(())
    }

    /// The contents of the zone of that name in the previous configuration, if user, size and type
    /// are the same.
    pub fn kept<T: ZoneState>(&self, name: &[u8]) -> Option<Rc<T>> {
        let declared = self.declared.borrow();
        let zone = declared.iter().find(|zone| zone.name == name)?;
        let before = self.before.borrow();
        let old = before
            .iter()
            .find(|old| old.name == name && old.user == zone.user && old.bytes == zone.bytes)?;
        let state: Rc<dyn Any> = old.state.clone()?;
        state.downcast().ok()
    }

    /// The user and the size in bytes of the zone of that name in the previous configuration, if
    /// either has changed: its contents are lost.
    pub fn other_shape(&self, name: &[u8]) -> Option<(&'static str, usize)> {
        let declared = self.declared.borrow();
        let zone = declared.iter().find(|zone| zone.name == name)?;
        let before = self.before.borrow();
        let old = before.iter().find(|old| old.name == name && old.state.is_some())?;
        let same = old.user == zone.user && old.bytes == zone.bytes;
        (!same).then_some((old.user, old.bytes))
    }

    /// Sets the contents of a declared zone.
    pub fn put<T: ZoneState>(&self, name: &[u8], state: Rc<T>) {
        let mut declared = self.declared.borrow_mut();
        if let Some(zone) = declared.iter_mut().find(|zone| zone.name == name) {
            zone.state = Some(state);
        }
    }

    /// Whether a zone of this configuration has its contents already.
    pub fn is_put(&self, name: &[u8]) -> bool {
        let declared = self.declared.borrow();
        declared.iter().any(|zone| zone.name == name && zone.state.is_some())
    }

    /// The zones of a configuration that know how full they are.
    pub fn report(&self) -> Vec<ZoneReport> {
        let declared = self.declared.borrow();
        let report = |zone: &Zone| {
            let fill = zone.state.as_ref()?.fill()?;
            Some(ZoneReport { name: zone.name.clone(), user: zone.user, bytes: zone.bytes, fill })
        };
        declared.iter().filter_map(report).collect()
    }

    /// The configuration is loaded: lets go of zones that only the one before has.
    pub fn settle(&self) {
        self.before.borrow_mut().clear();
    }

    /// In the master: the server ends; see [`ZoneState::stopped`].
    pub fn stopped(&self) {
        let declared = self.declared.borrow();
        declared.iter().filter_map(|zone| zone.state.as_ref()).for_each(|state| state.stopped());
    }

    /// In the master: a process is dead; see [`ZoneState::died`].
    pub fn died(&self, pid: u32, slot: usize) {
        let declared = self.declared.borrow();
        let states = declared.iter().filter_map(|zone| zone.state.as_ref());
        states.for_each(|state| state.died(pid, slot));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Text(&'static str);

    impl ZoneState for Text {
        fn died(&self, _: u32, _: usize) {}
    }

    #[test]
    fn conflicts_in_nginx_s_words() {
        let zones = Zones::default();
        zones.declare(b"a", None, "limit_req").unwrap();
        zones.declare(b"a", Some(65536), "limit_req").unwrap();
        zones.declare(b"a", None, "limit_req").unwrap();
        let size = zones.declare(b"a", Some(99), "limit_req").unwrap_err();
        let message =
            "the size 99 of shared memory zone \"a\" conflicts with already declared size 65536";
        assert_eq!(size.to_string(), message);
        let user = zones.declare(b"a", None, "limit_conn").unwrap_err();
        let message = "the shared memory zone \"a\" is already declared for a different use";
        assert_eq!(user.to_string(), message);
    }

    #[test]
    fn what_agrees_is_kept_for_one_generation() {
        let first = Zones::default();
        first.declare(b"a", Some(1), "x").unwrap();
        assert!(first.kept::<Text>(b"a").is_none());
        first.put(b"a", Rc::new(Text("old")));
        let next = |bytes, user| {
            let next = Zones::after(&first);
            next.declare(b"a", Some(bytes), user).unwrap();
            (next.kept::<Text>(b"a").map(|text| text.0), next.other_shape(b"a"))
        };
        assert_eq!(next(1, "x"), (Some("old"), None));
        assert_eq!(next(2, "x"), (None, Some(("x", 1))));
        assert_eq!(next(1, "y"), (None, Some(("x", 1))));
        let without = Zones::after(&first);
        let third = Zones::after(&without);
        third.declare(b"a", Some(1), "x").unwrap();
        assert!(third.kept::<Text>(b"a").is_none());
    }

    #[test]
    fn settling_lets_go() {
        let first = Zones::default();
        first.declare(b"a", Some(1), "x").unwrap();
        let text = Rc::new(Text("old"));
        first.put(b"a", text.clone());
        let next = Zones::after(&first);
        drop(first);
        assert_eq!(Rc::strong_count(&text), 2);
        next.settle();
        assert_eq!(Rc::strong_count(&text), 1);
    }
}
