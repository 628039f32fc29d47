//! Files of artifacts of `jax.export`, and their arguments and platforms. Nothing here needs a
//! trace.

use std::{borrow::Cow, path::Path};

use halite_core::{Array, Error, ErrorKind, HostArray, Result, TensorType, files, tree::Tree};
use halite_stablehlo::{
    Attributes, ElementType, Function, Module, Operation, RankedType, Region, Type, ValueId,
};

use crate::{
    Exported, PyTree,
    constant::{dense, fix_input},
    portable,
};

/// Values on a device or on the host: the leaves of a model to export.
pub trait HostValues {
    /// The type.
    fn ty(&self) -> &TensorType;

    /// The values on the host. Blocks until they are there.
    ///
    /// # Errors
    /// If they cannot be read.
    fn to_host(&self) -> Result<Cow<'_, HostArray>>;
}

impl HostValues for Array {
    fn ty(&self) -> &TensorType {
        Array::ty(self)
    }

    fn to_host(&self) -> Result<Cow<'_, HostArray>> {
        self.read().map(Cow::Owned)
    }
}

impl HostValues for HostArray {
    fn ty(&self) -> &TensorType {
        HostArray::ty(self)
    }

    fn to_host(&self) -> Result<Cow<'_, HostArray>> {
        Ok(Cow::Borrowed(self))
    }
}

impl Exported {
    /// Reads a file that [`save`](Self::save) or JAX wrote.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if it cannot be read; otherwise as [`read`](Self::read).
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let bytes = files::read_input(path).map_err(|error| file_error("read", path, error))?;
        Exported::read(&bytes).map_err(|error| error.with_note(&format!("in {}", path.display())))
    }

    /// Writes it to a file, for `jax.export.deserialize`, in place of one that is there.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if the file cannot be written; otherwise as [`to_bytes`](Self::to_bytes).
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        files::write_output(path, &self.to_bytes()?)
            .map_err(|error| file_error("write", path, error))
    }

    /// The same function with a positional argument as constants of the program, such as the
    /// parameters of a model. Arguments after it move to its place. Blocks until the values are on
    /// the host.
    ///
    /// # Errors
    /// If there is no such argument, `values` has other names or types, or cannot be read.
    pub fn with_constant(
        &self,
        argument: usize,
        values: &impl Tree<Leaf: HostValues>,
    ) -> Result<Self> {
        self.check()?;
        let mut next = self.clone();
        let (PyTree::Tuple(sides), all) = (&mut next.inputs, self.inputs.paths()) else {
            return Err(Error::invalid(OP, "the tree of arguments is not a pair"));
        };
        let Some(PyTree::Tuple(arguments)) = sides.first_mut() else {
            return Err(Error::invalid(
                OP,
                "the tree of arguments has no positional ones",
            ));
        };
        if argument >= arguments.len() {
            let count = arguments.len();
            let message = format!("argument {argument} of {count} positional arguments, from 0");
            return Err(Error::invalid(OP, message));
        }
        let expected = arguments.remove(argument).leaves();
        let named = values.named();
        if named.len() != expected {
            let count = named.len();
            let message = format!("{count} arrays given, argument {argument} has {expected}");
            return Err(Error::invalid(OP, message));
        }
        let mut module = Module::read(&self.program)?;
        let mut fixed = Vec::new();
        for (path, array) in named {
            let path = child(0, &child(argument, &path));
            let Some(leaf) = all.iter().position(|known| *known == path) else {
                let message = format!("argument {argument} has no array `{path}`");
                return Err(Error::invalid(OP, message));
            };
            let value = array.to_host()?;
            if self.input_types[leaf].as_ref() != Some(value.ty()) {
                let expected = &self.input_types[leaf];
                let message = format!("`{path}` is {expected:?}, {} given", value.ty());
                return Err(Error::invalid(OP, message));
            }
            fixed.push((leaf, value));
        }
        // From the last, so that the others keep their places.
        fixed.sort_by_key(|(leaf, _)| std::cmp::Reverse(*leaf));
        let first = usize::from(self.platforms.len() > 1);
        for (leaf, value) in &fixed {
            if let Ok(index) = self.used_inputs.binary_search(leaf) {
                fix_input(&mut module, first + index, dense(value))?;
            }
            next.input_types.remove(*leaf);
        }
        let gone = |leaf: usize| fixed.iter().any(|(fixed, _)| *fixed == leaf);
        let before = |leaf: usize| fixed.iter().filter(|(fixed, _)| *fixed < leaf).count();
        next.used_inputs = (self.used_inputs.iter())
            .filter(|&&leaf| !gone(leaf))
            .map(|&leaf| leaf - before(leaf))
            .collect();
        next.program = portable(&module, None)?.into();
        Ok(next)
    }

    /// The same function for these platforms, by the names of their PJRT plugins in lower case:
    /// `cpu`, `cuda`, `tpu`, or that of another plugin. JAX refuses to call it on others.
    ///
    /// # Errors
    /// If there are none, or one is named twice; if the program depends on the platform, as those
    /// of JAX for several platforms may.
    pub fn with_platforms(&self, platforms: &[impl AsRef<str>]) -> Result<Self> {
        self.check()?;
        let platforms: Vec<String> = platforms
            .iter()
            .map(|name| name.as_ref().to_owned())
            .collect();
        let is_distinct = |(index, name): (usize, &String)| {
            !name.is_empty() && !platforms[..index].contains(name)
        };
        if platforms.is_empty() || !platforms.iter().enumerate().all(is_distinct) {
            let message = format!("platforms {platforms:?}; expected distinct names, such as cpu");
            return Err(Error::invalid(OP, message));
        }
        let mut module = Module::read(&self.program)?;
        let main = (module.functions.iter_mut())
            .find(|function| function.name == "main")
            .ok_or_else(|| Error::invalid(OP, "the program has no function `main`"))?;
        if self.platforms.len() > 1 {
            let index = main.body.arguments.first();
            if index.is_none_or(|&index| uses(&main.body, index)) {
                let message = format!(
                    "`{}` depends on the platform, one of {}",
                    self.name,
                    self.platforms.join(", ")
                );
                return Err(Error::new(ErrorKind::Unsupported, OP, message));
            }
            main.body.arguments.remove(0);
            main.input_attributes = vec![Attributes::default(); main.body.arguments.len()];
        }
        if platforms.len() > 1 {
            add_platform_index(main);
        }
        Ok(Exported {
            platforms,
            program: portable(&module, None)?.into(),
            ..self.clone()
        })
    }
}

/// Returns true if a region uses a value.
fn uses(region: &Region, value: ValueId) -> bool {
    let uses_in = |operation: &Operation| {
        operation.operands.contains(&value)
            || operation.regions.iter().any(|region| uses(region, value))
    };
    region.results.contains(&value) || region.operations.iter().any(uses_in)
}

/// The path of a child.
pub(crate) fn child(index: usize, path: &str) -> String {
    match path {
        "" => index.to_string(),
        _ => format!("{index}.{path}"),
    }
}

/// Adds the first argument of a program for several platforms: the platform's index.
pub(crate) fn add_platform_index(main: &mut Function) {
    let index = main.value(Type::Tensor(RankedType::new(ElementType::S32, [])));
    main.body.arguments.insert(0, index);
    main.input_attributes = vec![Attributes::default(); main.body.arguments.len()];
}

fn file_error(verb: &str, path: &Path, error: std::io::Error) -> Error {
    let message = format!("cannot {verb} {}", path.display());
    Error::new(ErrorKind::Io, OP, message).caused_by(error)
}

pub(crate) const OP: &str = "export";
