//! Code of programs: a module as data, or text and bytecode from elsewhere.

use std::{any::Any, fmt, sync::Arc};

use crate::{ProgramFacts, program_text};

/// StableHLO of a [`Program`](crate::Program).
#[derive(Clone)]
pub enum Code {
    /// A module as data, from which text is written where a plugin or a file needs it.
    Module(Arc<dyn ModuleCode>),
    /// MLIR text or bytecode from elsewhere.
    Bytes(Arc<[u8]>),
}

/// A module as data. The crate `halite-stablehlo` implements it; this one knows no operation.
pub trait ModuleCode: Any + Send + Sync {
    /// MLIR text, with the user's source lines.
    fn text(&self) -> &[u8];

    /// Calls `each` with the pieces of the text without source lines, which are the same for equal
    /// programs.
    fn without_locations(&self, each: &mut dyn FnMut(&[u8]));

    /// What compilations need to know of it.
    fn facts(&self) -> &ProgramFacts;
}

impl Code {
    /// MLIR text or bytecode.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Code::Module(module) => module.text(),
            Code::Bytes(bytes) => bytes,
        }
    }

    /// Calls `each` with the pieces of the text between source lines. Bytecode is one piece.
    pub fn without_locations(&self, mut each: impl FnMut(&[u8])) {
        match self {
            Code::Module(module) => module.without_locations(&mut each),
            Code::Bytes(bytes) => program_text::without_locations(bytes, each),
        }
    }

    /// The facts of a module. Others are searched for them.
    pub fn facts(&self) -> Option<&ProgramFacts> {
        match self {
            Code::Module(module) => Some(module.facts()),
            Code::Bytes(_) => None,
        }
    }

    /// The module, if it is one of this type.
    pub fn module<M: ModuleCode>(&self) -> Option<&M> {
        match self {
            Code::Module(module) => (&**module as &dyn Any).downcast_ref(),
            Code::Bytes(_) => None,
        }
    }
}

impl From<Arc<[u8]>> for Code {
    fn from(bytes: Arc<[u8]>) -> Self {
        Code::Bytes(bytes)
    }
}

impl From<Vec<u8>> for Code {
    fn from(bytes: Vec<u8>) -> Self {
        Code::Bytes(bytes.into())
    }
}

impl From<&[u8]> for Code {
    fn from(bytes: &[u8]) -> Self {
        Code::Bytes(bytes.into())
    }
}

impl From<&str> for Code {
    fn from(text: &str) -> Self {
        Code::from(text.as_bytes())
    }
}

impl From<String> for Code {
    fn from(text: String) -> Self {
        Code::from(text.into_bytes())
    }
}

/// Compares bytes.
impl PartialEq for Code {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match std::str::from_utf8(self.bytes()) {
            Ok(text) => f.write_str(text),
            Err(_) => write!(f, "{} bytes of bytecode", self.bytes().len()),
        }
    }
}
