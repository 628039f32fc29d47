//! Reader of artifacts. They come from outside: no input makes it panic, recurse without bound, or
//! use memory out of proportion to its length.

use halite_core::{DType, Error, ErrorKind, Result, TensorType, format_count};

use super::{Exported, PyTree, slot};
use crate::flatbuffer::{Buffer, Table};

/// Calling conventions of the program that are known: 10 differs from 9 in that shardings are
/// Shardy's.
const CALLING_CONVENTIONS: std::ops::RangeInclusive<u16> = 9..=10;

/// Bound on the nesting of trees.
const MOST_LEVELS: usize = 64;

impl Exported {
    /// Reads what `jax.export.Exported.serialize` returned.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if the bytes are not such an artifact; [`ErrorKind::Unsupported`] if
    /// it has symbolic dimensions, ordered effects, or an unknown calling convention.
    pub fn read(bytes: &[u8]) -> Result<Self> {
        let buffer = Buffer::new(bytes);
        let table = buffer.root()?;
        let convention = table.u16(slot::CALLING_CONVENTION)?;
        if !CALLING_CONVENTIONS.contains(&convention) {
            return Err(unsupported(format!(
                "calling convention {convention}; known are {} and {}",
                CALLING_CONVENTIONS.start(),
                CALLING_CONVENTIONS.end()
            )));
        }
        let effects = table.tables(slot::ORDERED_EFFECTS)?;
        if let Some(effect) = effects.first() {
            return Err(unsupported(format!(
                "the function has the ordered effect {}; functions without effects are supported",
                effect.text(0)?.unwrap_or_default()
            )));
        }
        let devices = match table.u32(slot::DEVICES)? {
            0 => table.u16(slot::DEVICES_SHORT)?.into(),
            devices => devices,
        };
        let exported = Exported {
            name: table.text(slot::NAME)?.unwrap_or("main").to_owned(),
            inputs: tree_field(&table, slot::INPUT_TREE, "arguments")?,
            input_types: types(&table, slot::INPUT_TYPES, slot::INPUT_TYPE_INDICES)?,
            outputs: tree_field(&table, slot::OUTPUT_TREE, "results")?,
            output_types: types(&table, slot::OUTPUT_TYPES, slot::OUTPUT_TYPE_INDICES)?,
            platforms: (table.texts(slot::PLATFORMS)?.into_iter())
                .map(str::to_owned)
                .collect(),
            used_inputs: (table.u16s(slot::USED_INPUTS)?.into_iter())
                .map(usize::from)
                .collect(),
            devices: usize::try_from(devices).unwrap_or(usize::MAX).max(1),
            program: table.bytes(slot::PROGRAM)?.into(),
        };
        exported.check()?;
        Ok(exported)
    }

    /// Checks that trees, types and indices fit each other.
    pub(crate) fn check(&self) -> Result<()> {
        let sides = [
            ("argument", &self.inputs, &self.input_types),
            ("result", &self.outputs, &self.output_types),
        ];
        for (what, tree, types) in sides {
            let (leaves, types) = (tree.leaves(), types.len());
            if leaves != types {
                return Err(corrupt(format!(
                    "the tree of {what}s has {leaves} leaves, and there are {types} types"
                )));
            }
        }
        let ascending = self.used_inputs.is_sorted_by(|a, b| a < b);
        let count = self.input_types.len();
        if !ascending || self.used_inputs.last().is_some_and(|&last| last >= count) {
            return Err(corrupt(format!(
                "the indices of used arguments are {:?}; they must ascend below {count}",
                self.used_inputs
            )));
        }
        Ok(())
    }
}

/// The types of arguments or results: a list of types and an index for each, or in artifacts before
/// serialization version 10 a type for each.
fn types(table: &Table<'_>, all: usize, indices: usize) -> Result<Vec<Option<TensorType>>> {
    let indices = table.u32s(indices)?;
    if indices.is_empty() {
        return table.tables(all)?.iter().map(array_type).collect();
    }
    let unique: Vec<Option<TensorType>> = (table.tables(slot::UNIQUE_TYPES)?.iter())
        .map(array_type)
        .collect::<Result<_>>()?;
    let find = |index: u32| {
        let found = usize::try_from(index)
            .ok()
            .and_then(|index| unique.get(index));
        found
            .cloned()
            .ok_or_else(|| corrupt(format!("type {index} of {} types", unique.len())))
    };
    indices.into_iter().map(find).collect()
}

/// The type of a table `AbstractValue`; `None` if there are no arrays of it.
fn array_type(table: &Table<'_>) -> Result<Option<TensorType>> {
    let mut dims = Vec::new();
    for text in table.texts(1)? {
        let Ok(dim) = text.parse::<usize>() else {
            return Err(unsupported(format!(
                "the dimension `{text}` is symbolic; export the function for concrete shapes"
            )));
        };
        dims.push(dim);
    }
    let dtype = DType::from_jax_number(table.u8(2)?.into());
    let ty = dtype.map(|dtype| TensorType::new(dtype, dims));
    if let Some(ty) = &ty {
        ty.checked_bytes()?;
    }
    Ok(ty)
}

fn tree_field(table: &Table<'_>, slot: usize, what: &str) -> Result<PyTree> {
    match table.table(slot)? {
        Some(root) => tree(&root, MOST_LEVELS),
        None => Err(corrupt(format!("the tree of {what} is missing"))),
    }
}

fn tree(table: &Table<'_>, levels: usize) -> Result<PyTree> {
    let Some(levels) = levels.checked_sub(1) else {
        return Err(unsupported(format!(
            "a tree of arguments or results has more than {MOST_LEVELS} levels"
        )));
    };
    let kind = table.u8(0)?;
    if kind == 0 {
        return Ok(PyTree::Leaf);
    }
    let children: Vec<PyTree> = (table.tables(1)?.iter())
        .map(|child| tree(child, levels))
        .collect::<Result<_>>()?;
    Ok(match kind {
        1 => PyTree::None,
        2 => PyTree::Tuple(children),
        3 => PyTree::List(children),
        4 => {
            let keys = table.texts(2)?;
            if keys.len() != children.len() {
                let (keys, children) = (keys.len(), children.len());
                return Err(corrupt(format!(
                    "a dict of {keys} keys has {children} values"
                )));
            }
            let keys = keys.into_iter().map(str::to_owned);
            PyTree::Dict(keys.zip(children).collect())
        }
        5 => PyTree::Custom {
            name: table.text(3)?.unwrap_or_default().to_owned(),
            data: table.bytes(4)?.to_vec(),
            children,
        },
        _ => {
            let kind = format_count(kind.into());
            return Err(unsupported(format!(
                "node kind {kind} of a tree of arguments"
            )));
        }
    })
}

fn corrupt(message: String) -> Error {
    Error::new(ErrorKind::Corrupt, OP, message)
}

fn unsupported(message: String) -> Error {
    Error::new(ErrorKind::Unsupported, OP, message)
}

const OP: &str = "jax.export artifact";
