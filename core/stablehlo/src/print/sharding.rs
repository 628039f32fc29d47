//! Meshes and shardings as text.

use std::fmt::{Display, Formatter, Result};

use super::text::Text;
use crate::{ShardyAxis, ShardyDim, ShardyMesh, ShardySharding};

impl Text<'_> {
    /// Writes `sdy.mesh @mesh = <["x"=4], device_ids=[3, 2, 1, 0]>`.
    pub(super) fn mesh(&mut self, mesh: &ShardyMesh) -> &mut Self {
        self.text("sdy.mesh ").symbol(&mesh.name).text(" = <");
        self.list(&mesh.axes, |text, (name, size)| {
            text.string(name).char('=').number(*size as u64);
        });
        if !mesh.devices.is_empty() {
            self.text(", device_ids=").sizes(&mesh.devices);
        }
        self.char('>')
    }

    /// Writes `<@mesh, [{"x"}, {?}], replicated={"y"}>`.
    pub(super) fn sharding(&mut self, sharding: &ShardySharding) -> &mut Self {
        self.char('<').symbol(&sharding.mesh).text(", ");
        self.list(&sharding.dims, |text, dim| {
            text.sharded_dim(dim);
        });
        for (name, axes) in [
            (", replicated=", &sharding.replicated),
            (", unreduced=", &sharding.unreduced),
        ] {
            if !axes.is_empty() {
                self.text(name).axes(axes);
            }
        }
        self.char('>')
    }

    /// Writes `[<..>, <..>]`.
    pub(super) fn shardings(&mut self, shardings: &[ShardySharding]) -> &mut Self {
        self.list(shardings, |text, sharding| {
            text.sharding(sharding);
        })
    }

    /// Writes `{"x", ?}p1`.
    fn sharded_dim(&mut self, dim: &ShardyDim) -> &mut Self {
        self.char('{').each(&dim.axes, |text, axis| {
            text.axis(axis);
        });
        if dim.open {
            self.comma(dim.axes.len()).char('?');
        }
        self.char('}');
        match dim.priority {
            Some(priority) => self.char('p').number(priority),
            None => self,
        }
    }

    /// Writes `{"x", "y"}`.
    pub(super) fn axes(&mut self, axes: &[ShardyAxis]) -> &mut Self {
        let axis = |text: &mut Self, axis: &ShardyAxis| {
            text.axis(axis);
        };
        self.char('{').each(axes, axis).char('}')
    }

    /// Writes `"x"` or `"x":(2)4`.
    fn axis(&mut self, axis: &ShardyAxis) -> &mut Self {
        self.string(&axis.name);
        match axis.part {
            Some((before, size)) => {
                self.text(":(").number(before as u64);
                self.char(')').number(size as u64)
            }
            None => self,
        }
    }
}

macro_rules! display {
    ($($ty:ident = $write:ident;)*) => {$(
        impl Display for $ty {
            fn fmt(&self, f: &mut Formatter<'_>) -> Result {
                let mut text = Text::streamed(f);
                text.$write(self);
                text.finish().1
            }
        }
    )*};
}

display! {
    ShardyMesh = mesh;
    ShardySharding = sharding;
    ShardyDim = sharded_dim;
    ShardyAxis = axis;
}
