//! What a file and a model do not have in common.

use std::{collections::HashSet, fmt};

use halite_core::{Error, ErrorKind, TensorType};

use crate::TensorInfo;

/// Lines that an error shows of each kind; a report prints all.
const SHOWN: usize = 20;

/// All differences between a file and the model it is loaded into.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// Where the tensors are from.
    pub origin: String,
    /// Parameters whose tensor the file does not have.
    pub missing: Vec<Mismatch>,
    /// Tensors of the file that no parameter uses, except those that the map ignores.
    pub unexpected: Vec<TensorInfo>,
    /// Tensors of other dimensions than the parameter.
    pub shape_mismatches: Vec<Mismatch>,
    /// Tensors whose element type does not convert: only floats do.
    pub dtype_mismatches: Vec<Mismatch>,
    /// Parameters that are initialized on request: see
    /// [`WeightLoader::replace`](crate::WeightLoader::replace).
    pub replaced: Vec<Mismatch>,
    /// Rules and layouts of the map that no parameter matches.
    pub unused_rules: Vec<String>,
}

/// A tensor that is wanted, and what the file has.
#[derive(Clone, Debug, PartialEq)]
pub struct Mismatch {
    /// Paths of the parameters; several are parts of one tensor.
    pub paths: Vec<String>,
    /// Name of the tensor in the file.
    pub name: String,
    /// Type in the file that would fit; other floats do as well.
    pub expected: TensorType,
    /// Type in the file, if it has the tensor.
    pub found: Option<TensorType>,
}

impl Report {
    /// Whether every parameter has its tensor, or is replaced, and every tensor its parameter.
    pub fn is_complete(&self) -> bool {
        let lists = [
            &self.missing,
            &self.shape_mismatches,
            &self.dtype_mismatches,
        ];
        lists.iter().all(|list| list.is_empty()) && self.unexpected.is_empty()
    }

    /// All of it as one error.
    pub(crate) fn to_error(&self) -> Error {
        let count = self.missing.len()
            + self.unexpected.len()
            + self.shape_mismatches.len()
            + self.dtype_mismatches.len();
        let mut lines = String::new();
        self.write(&mut lines, SHOWN)
            .expect("writing to a string does not fail");
        let message = format!(
            "{} does not fit the model: {count} mismatches; nothing was loaded\n{}",
            self.origin,
            lines.trim_end()
        );
        Error::new(ErrorKind::InvalidArgument, "load weights", message)
    }

    fn write(&self, f: &mut impl fmt::Write, shown: usize) -> fmt::Result {
        let more = |f: &mut dyn fmt::Write, count: usize| match count.saturating_sub(shown) {
            0 => Ok(()),
            more => writeln!(f, "  and {more} more"),
        };
        for (title, list) in [
            ("missing", &self.missing),
            ("shape mismatch", &self.shape_mismatches),
            ("dtype mismatch", &self.dtype_mismatches),
            ("replaced", &self.replaced),
        ] {
            if list.is_empty() {
                continue;
            }
            writeln!(f, "{title}:")?;
            for mismatch in list.iter().take(shown) {
                writeln!(f, "  {mismatch}")?;
            }
            more(f, list.len())?;
        }
        if !self.unexpected.is_empty() {
            writeln!(f, "unexpected:")?;
            for TensorInfo { name, ty } in self.unexpected.iter().take(shown) {
                writeln!(f, "  `{}` {ty}", name.escape_debug())?;
            }
            more(f, self.unexpected.len())?;
        }
        if !(self.is_complete() || self.unused_rules.is_empty()) {
            writeln!(f, "rules without a parameter:")?;
            for rule in self.unused_rules.iter().take(shown) {
                writeln!(f, "  {rule}")?;
            }
            more(f, self.unused_rules.len())?;
        }
        match self.prefix() {
            Some(prefix) => {
                let prefix = prefix.escape_debug();
                writeln!(
                    f,
                    "the file has these names below `{prefix}`: open it as `Below::new(file, \"{prefix}\")?`"
                )
            }
            None => Ok(()),
        }
    }

    /// The prefix below which the file has at least half of the tensors that are missing, such as
    /// `state_dict` of a training framework or `module` of `DataParallel`.
    fn prefix(&self) -> Option<&str> {
        let unexpected: HashSet<&str> = self.unexpected.iter().map(|info| &*info.name).collect();
        let first = &self.missing.first()?.name;
        let below = |name: &'_ str| name.strip_suffix(&**first)?.strip_suffix('.').map(str::len);
        let found = (self.unexpected.iter())
            .find_map(|info| below(&info.name).map(|len| &info.name[..len]))?;
        let is_there =
            |missing: &&Mismatch| unexpected.contains(&*format!("{found}.{}", missing.name));
        let count = self.missing.iter().filter(is_there).count();
        (2 * count >= self.missing.len()).then_some(found)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, usize::MAX)
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mismatch {
            paths,
            name,
            expected,
            found,
        } = self;
        let paths: Vec<String> = paths.iter().map(|path| format!("`{path}`")).collect();
        let name = name.escape_debug();
        write!(f, "{}: `{name}` {expected}", paths.join(", "))?;
        match found {
            Some(found) => write!(f, ", the file has {found}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use halite_core::HostArray;
    use halite_nn::Linear;

    use crate::{Below, HostTensors, NameMap, WeightLoader};

    #[test]
    fn prefix_of_a_training_framework_is_named() {
        let array =
            |dims: &[usize]| HostArray::from_slice(&[0.0f32; 6][..dims.iter().product()], dims);
        let named = |weight: &str, bias: &str| {
            let arrays = [
                (weight, array(&[2, 3]).unwrap()),
                (bias, array(&[2]).unwrap()),
            ];
            HostTensors::from(BTreeMap::from(
                arrays.map(|(name, array)| (name.to_owned(), array)),
            ))
        };
        let (map, model) = (NameMap::torch(), Linear::new(3, 2));
        let source = named("state_dict.module.weight", "state_dict.module.bias");
        let report = WeightLoader::new(&source, &map).report(&model).unwrap();
        let last = "open it as `Below::new(file, \"state_dict.module\")?`\n";
        assert!(report.to_string().ends_with(last), "{report}");
        let below = Below::new(&source, "state_dict.module").unwrap();
        let report = WeightLoader::new(&below, &map).report(&model).unwrap();
        assert_eq!(report.to_string(), "");
        // Names of something else.
        let source = named("encoder.weight.other", "encoder.scale");
        let report = WeightLoader::new(&source, &map).report(&model).unwrap();
        assert!(!report.to_string().contains("Below"), "{report}");
    }
}
