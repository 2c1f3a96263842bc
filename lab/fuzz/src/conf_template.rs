//! Text with variables.

use std::path::Path;

use bytes::Bytes;
use conf::template::{Template, VarId, VarNames, VarSource};
use conf::{ConfError, Pos, Word};

/// Each variable's value is how it is written.
#[derive(Default)]
struct Vars(Vec<Vec<u8>>);

impl VarNames for Vars {
    fn var_id(&mut self, name: &[u8], _: &Word) -> Result<VarId, ConfError> {
        assert!(!name.is_empty());
        assert!(name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_'));
        self.0.push([b"${", name, b"}"].concat());
        Ok(VarId(self.0.len() as u32 - 1))
    }

    fn capture_id(&mut self, group: u8) -> VarId {
        assert!((1..=9).contains(&group));
        self.0.push(vec![b'$', b'0' + group]);
        VarId(self.0.len() as u32 - 1)
    }
}

impl VarSource for Vars {
    fn value(&mut self, id: VarId) -> Option<Bytes> {
        Some(Bytes::copy_from_slice(&self.0[id.0 as usize]))
    }
}

/// Compiles `data` and evaluates it to itself.
pub fn run(data: &[u8]) {
    let pos = Pos { file: Path::new("fuzz").into(), line: 1, column: 1 };
    let word = Word { text: Bytes::copy_from_slice(data), pos, quoted: false };
    let mut vars = Vars::default();
    match Template::parse(&word, &mut vars) {
        Ok(template) => {
            assert_eq!(template.as_const().is_some(), !data.contains(&b'$'));
            assert_eq!(template.vars().count(), vars.0.len());
            let value = template.eval(&mut vars);
            let mut appended = Vec::new();
            template.eval_into(&mut vars, &mut appended);
            assert_eq!(value, appended);
            assert_eq!(bare(&value), bare(data));
        }
        Err(error) => assert!(data.contains(&b'$'), "{error}"),
    }
}

/// The text without braces: `$a` and `${a}` are the same.
fn bare(text: &[u8]) -> Vec<u8> {
    text.iter().copied().filter(|byte| !matches!(byte, b'{' | b'}')).collect()
}
