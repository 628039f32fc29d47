//! Adds attributes of the types that operations have.

use crate::{Attribute, Attributes, Dense, ElementType};

impl Attributes {
    pub(super) fn push_groups(&mut self, groups: &[Vec<usize>]) {
        let width = groups.iter().map(Vec::len).max().unwrap_or(0);
        let rows = groups.iter().flat_map(|group| {
            let members = group.iter().map(|&member| member as i64);
            members.chain(std::iter::repeat(-1)).take(width)
        });
        let mut dense = Dense::from_integers(rows);
        dense.ty.dims = vec![groups.len(), width];
        self.push("replica_groups", Attribute::Dense(dense));
    }

    pub(super) fn push_channel(&mut self, channel: Option<i64>) {
        if let Some(channel) = channel {
            self.push("channel_id", Attribute::Int(channel, ElementType::S64));
        }
    }

    pub(super) fn push_precision(&mut self, precision: &[String]) {
        let precision = precision.iter().cloned().map(Attribute::Str).collect();
        self.push("precision_config", Attribute::Array(precision));
    }

    pub(super) fn push_size(&mut self, name: &str, value: usize) {
        self.push(name, Attribute::Int(value as i64, ElementType::S64));
    }

    pub(super) fn push_i32(&mut self, name: &str, value: i64) {
        self.push(name, Attribute::Int(value, ElementType::S32));
    }

    pub(super) fn push_flag(&mut self, name: &str, value: bool) {
        self.push(name, Attribute::Bool(value));
    }

    pub(super) fn push_case(&mut self, name: &str, case: &str) {
        self.push(name, Attribute::Str(case.into()));
    }

    pub(super) fn push_ints(&mut self, name: &str, values: &[i64]) {
        let dense = Dense::from_integers(values.iter().copied());
        self.push(name, Attribute::Dense(dense));
    }

    pub(super) fn push_sizes(&mut self, name: &str, values: &[usize]) {
        let dense = Dense::from_integers(values.iter().map(|&value| value as i64));
        self.push(name, Attribute::Dense(dense));
    }

    pub(super) fn push_pairs(&mut self, name: &str, pairs: Vec<(i64, i64)>) {
        let rows = pairs.iter().flat_map(|&(low, high)| [low, high]);
        let mut dense = Dense::from_integers(rows);
        dense.ty.dims = vec![pairs.len(), 2];
        self.push(name, Attribute::Dense(dense));
    }
}
