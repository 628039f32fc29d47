//! Decoding and encoding of Shardy's attributes.
//!
//! Source: `shardy/dialect/sdy/ir/bytecode.td` in <https://github.com/openxla/shardy>, which gives
//! each attribute a code.

use halite_core::{Error, Result};

use super::{
    attributes::AttributeEntry,
    cursor::{Cursor, check_index, corrupt, unsupported},
    encode::{Form, MIXED, begin},
    encoder::Encoder,
    interned::{BUILTIN, SHARDY, Tables},
    sections::Dialect,
    table::Table,
};
use crate::{Attribute, ShardyAxis, ShardyDim, ShardyMesh, ShardySharding};

/// Codes of Shardy's attributes.
pub(super) mod code {
    pub(crate) const MANUAL_AXES: u64 = 0;
    pub(crate) const MESH_AXIS: u64 = 1;
    pub(crate) const MESH: u64 = 2;
    pub(crate) const SUB_AXIS: u64 = 3;
    pub(crate) const AXIS: u64 = 4;
    pub(crate) const DIM: u64 = 5;
    pub(crate) const SHARDING: u64 = 6;
    pub(crate) const SHARDINGS: u64 = 7;
    pub(crate) const SHARDING_RULE: u64 = 10;
    pub(crate) const UNREDUCED_SHARDING: u64 = 15;
    pub(crate) const UNREDUCED_SHARDINGS: u64 = 16;
}

/// The axes and the devices of a mesh.
#[derive(Debug, Default)]
pub(super) struct MeshShape {
    pub(super) axes: Vec<(String, usize)>,
    pub(super) devices: Vec<usize>,
}

impl<'a> Table<'a> {
    pub(super) fn shardy_attribute(
        &mut self,
        code: u64,
        cursor: &mut Cursor<'a>,
        depth: u32,
    ) -> Result<AttributeEntry> {
        let position = cursor.position();
        Ok(AttributeEntry::Value(match code {
            code::MANUAL_AXES => {
                let axis = |table: &mut Self, cursor: &mut Cursor<'a>| {
                    let name = table.next_text(cursor, depth)?;
                    Ok(ShardyAxis { name, part: None })
                };
                Attribute::Axes(self.list(cursor, "axes", axis)?)
            }
            code::SHARDING | code::UNREDUCED_SHARDING => {
                Attribute::Sharding(self.sharding(code, cursor, depth)?)
            }
            code::SHARDINGS | code::UNREDUCED_SHARDINGS => {
                let sharding = |table: &mut Self, cursor: &mut Cursor<'a>| {
                    let position = cursor.position();
                    match table.next_value(cursor, depth)? {
                        Attribute::Sharding(sharding) => Ok(sharding),
                        _ => Err(corrupt(position, "an attribute that is not a sharding")),
                    }
                };
                Attribute::Shardings(self.list(cursor, "shardings", sharding)?)
            }
            code::SHARDING_RULE => {
                // A hint for the propagation of shardings through a custom call.
                cursor.part(cursor.remaining() as u64)?;
                return Ok(AttributeEntry::Missing);
            }
            _ => {
                let message = format_args!("Shardy attribute {code}");
                return Err(unsupported(position, message));
            }
        }))
    }

    /// A mesh, which the next index names.
    pub(super) fn next_mesh(&mut self, cursor: &mut Cursor<'a>) -> Result<MeshShape> {
        let mut contents = self.shardy_entry(cursor, code::MESH)?;
        let axes = self.list(&mut contents, "axes", |table, cursor| {
            let mut axis = table.shardy_entry(cursor, code::MESH_AXIS)?;
            let name = table.strings.next(&mut axis)?.to_owned();
            let size = size(&mut axis)?;
            axis.finish("an axis of a mesh")?;
            Ok((name, size))
        })?;
        let count = contents.count("devices")?;
        let devices: Result<_> = (0..count).map(|_| size(&mut contents)).collect();
        contents.finish("a mesh")?;
        let devices = devices?;
        Ok(MeshShape { axes, devices })
    }

    fn sharding(
        &mut self,
        code: u64,
        cursor: &mut Cursor<'a>,
        depth: u32,
    ) -> Result<ShardySharding> {
        let position = cursor.position();
        let mesh = self.next_value(cursor, depth)?;
        let Attribute::Symbol(mesh) = mesh else {
            let message = "a sharding whose mesh is not a symbol; declare it with `sdy.mesh`";
            return Err(unsupported(position, message));
        };
        Ok(ShardySharding {
            mesh,
            dims: self.list(cursor, "dimensions", Self::dim)?,
            replicated: self.axes(cursor)?,
            unreduced: match code {
                code::UNREDUCED_SHARDING => self.axes(cursor)?,
                _ => Vec::new(),
            },
        })
    }

    fn dim(&mut self, cursor: &mut Cursor<'a>) -> Result<ShardyDim> {
        let mut dim = self.shardy_entry(cursor, code::DIM)?;
        let axes = self.axes(&mut dim)?;
        let open = dim.byte()? == 0;
        let position = dim.position();
        let priority = match dim.flagged()? {
            (_, false) => None,
            (priority, true) => Some(u32::try_from(priority).map_err(|_| {
                corrupt(
                    position,
                    format_args!("the priority {priority} of a dimension"),
                )
            })?),
        };
        dim.finish("the sharding of a dimension")?;
        Ok(ShardyDim {
            axes,
            open,
            priority,
        })
    }

    fn axes(&mut self, cursor: &mut Cursor<'a>) -> Result<Vec<ShardyAxis>> {
        self.list(cursor, "axes", |table, cursor| {
            let mut axis = table.shardy_entry(cursor, code::AXIS)?;
            let name = table.strings.next(&mut axis)?.to_owned();
            let part = table.sub_axis(&mut axis)?;
            axis.finish("an axis")?;
            Ok(ShardyAxis { name, part })
        })
    }

    /// `(pre-size, size)` of a part of an axis, if the next index names one.
    fn sub_axis(&mut self, cursor: &mut Cursor<'a>) -> Result<Option<(usize, usize)>> {
        let position = cursor.position();
        let (index, present) = cursor.flagged()?;
        if !present {
            return Ok(None);
        }
        let mut part = self.shardy_entry_at(index, position, code::SUB_AXIS)?;
        let part_sizes = (size(&mut part)?, size(&mut part)?);
        part.finish("a part of an axis")?;
        Ok(Some(part_sizes))
    }

    /// A list of items, each of which accounts for its memory.
    fn list<T>(
        &mut self,
        cursor: &mut Cursor<'a>,
        items: &str,
        mut item: impl FnMut(&mut Self, &mut Cursor<'a>) -> Result<T>,
    ) -> Result<Vec<T>> {
        let count = cursor.count(items)?;
        let list = (0..count).map(|_| {
            self.spend(size_of::<T>(), cursor.position())?;
            item(self, cursor)
        });
        list.collect()
    }

    /// The contents of the attribute with code `expected` that the next index names.
    fn shardy_entry(&mut self, cursor: &mut Cursor<'a>, expected: u64) -> Result<Cursor<'a>> {
        let position = cursor.position();
        let index = cursor.varint()?;
        self.shardy_entry_at(index, position, expected)
    }

    fn shardy_entry_at(
        &mut self,
        index: u64,
        position: usize,
        expected: u64,
    ) -> Result<Cursor<'a>> {
        let index = check_index(index, self.attributes.len(), position, "attribute")?;
        let entry = self.attributes[index];
        let mut contents = entry.contents;
        if entry.dialect == Dialect::Shardy && entry.encoded && contents.varint()? == expected {
            return Ok(contents);
        }
        let message = format_args!("attribute {index} is not of Shardy's kind {expected}");
        Err(corrupt(position, message))
    }
}

/// A signed integer that is not negative.
fn size(cursor: &mut Cursor<'_>) -> Result<usize> {
    let position = cursor.position();
    let value = cursor.signed()?;
    usize::try_from(value).map_err(|_| corrupt(position, format_args!("the size {value}")))
}

impl Tables {
    /// Index of the shape of a mesh.
    pub(super) fn mesh(&mut self, mesh: &ShardyMesh) -> usize {
        let mut contents = begin(code::MESH);
        contents.size(mesh.axes.len());
        for (name, size) in &mesh.axes {
            let mut axis = begin(code::MESH_AXIS);
            axis.size(self.string(name)).signed(*size as i64);
            contents.size(self.entry(SHARDY, axis));
        }
        contents.signed_list(
            &mesh
                .devices
                .iter()
                .map(|device| *device as i64)
                .collect::<Vec<_>>(),
        );
        self.entry(SHARDY, contents)
    }

    /// Index of axes of a manual computation.
    pub(super) fn manual_axes(&mut self, axes: &[ShardyAxis]) -> Result<usize> {
        let mut contents = begin(code::MANUAL_AXES);
        contents.size(axes.len());
        for axis in axes {
            if axis.part.is_some() {
                let message = format!("`{}`: manual axes are whole axes", axis.name);
                return Err(Error::invalid("bytecode", message));
            }
            let name = self.text(&axis.name, Form::Builtin);
            contents.size(self.entry(BUILTIN, name));
        }
        Ok(self.entry(SHARDY, contents))
    }

    /// Index of a sharding for each value.
    pub(super) fn shardings(&mut self, shardings: &[ShardySharding]) -> Result<usize> {
        let unreduced = shardings
            .iter()
            .any(|sharding| !sharding.unreduced.is_empty());
        let mut contents = begin(match unreduced {
            true => code::UNREDUCED_SHARDINGS,
            false => code::SHARDINGS,
        });
        contents.size(shardings.len());
        for sharding in shardings {
            contents.size(self.sharding(sharding)?);
        }
        Ok(self.entry(SHARDY, contents))
    }

    /// Index of a sharding.
    pub(super) fn sharding(&mut self, sharding: &ShardySharding) -> Result<usize> {
        self.require("a sharding of Shardy", MIXED)?;
        let unreduced = !sharding.unreduced.is_empty();
        let mut contents = begin(match unreduced {
            true => code::UNREDUCED_SHARDING,
            false => code::SHARDING,
        });
        contents.size(self.symbol(&sharding.mesh));
        contents.size(sharding.dims.len());
        for dim in &sharding.dims {
            contents.size(self.dim(dim));
        }
        self.axes(&sharding.replicated, &mut contents);
        if unreduced {
            self.axes(&sharding.unreduced, &mut contents);
        }
        Ok(self.entry(SHARDY, contents))
    }

    fn dim(&mut self, dim: &ShardyDim) -> usize {
        let mut contents = begin(code::DIM);
        self.axes(&dim.axes, &mut contents);
        contents.byte((!dim.open).into());
        contents.flagged(dim.priority.unwrap_or(0) as usize, dim.priority.is_some());
        self.entry(SHARDY, contents)
    }

    fn axes(&mut self, axes: &[ShardyAxis], contents: &mut Encoder) {
        contents.size(axes.len());
        for axis in axes {
            let mut entry = begin(code::AXIS);
            entry.size(self.string(&axis.name));
            match axis.part {
                None => entry.varint(0),
                Some((before, size)) => {
                    let mut part = begin(code::SUB_AXIS);
                    part.signed(before as i64).signed(size as i64);
                    entry.flagged(self.entry(SHARDY, part), true)
                }
            };
            contents.size(self.entry(SHARDY, entry));
        }
    }
}
