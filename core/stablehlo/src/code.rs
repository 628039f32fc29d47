//! Modules as the code of programs.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use halite_core::{Code, ModuleCode, ProgramFacts, Result};

use crate::{
    Attribute, Attributes, ElementType, Module, OpKind, Operation, RankedType, Region, ShardyMesh,
    Type,
};

/// A module as the code of a [`Program`](halite_core::Program). Its text is written when it is first
/// asked for.
#[derive(Debug)]
pub struct ProgramModule {
    module: Module,
    text: OnceLock<String>,
    facts: OnceLock<ProgramFacts>,
}

impl ProgramModule {
    /// The module.
    pub fn module(&self) -> &Module {
        &self.module
    }
}

impl From<Module> for Code {
    fn from(module: Module) -> Self {
        Code::Module(Arc::new(ProgramModule {
            module,
            text: OnceLock::new(),
            facts: OnceLock::new(),
        }))
    }
}

impl Module {
    /// The module of a program's code: a copy, or what is read from text or bytecode.
    ///
    /// # Errors
    /// The errors of [`read`](Self::read).
    pub fn from_code(code: &Code) -> Result<Module> {
        match code.module::<ProgramModule>() {
            Some(code) => Ok(code.module.clone()),
            None => Module::read(code.bytes()),
        }
    }
}

impl ModuleCode for ProgramModule {
    fn text(&self) -> &[u8] {
        self.text.get_or_init(|| self.module.to_text()).as_bytes()
    }

    fn without_locations(&self, each: &mut dyn FnMut(&[u8])) {
        let written = self.module.write_without_locations(&mut Pieces(each));
        written.expect("the sink returns no errors");
    }

    fn facts(&self) -> &ProgramFacts {
        self.facts.get_or_init(|| facts(&self.module))
    }
}

/// Passes text on to a function.
struct Pieces<'a>(&'a mut dyn FnMut(&[u8]));

impl fmt::Write for Pieces<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        (self.0)(text.as_bytes());
        Ok(())
    }
}

fn facts(module: &Module) -> ProgramFacts {
    let mut facts = ProgramFacts {
        shardy: !module.meshes.is_empty(),
        mesh_sizes: module.meshes.iter().map(ShardyMesh::size).collect(),
        ..ProgramFacts::default()
    };
    for function in &module.functions {
        for ty in &function.types {
            collect_type(&mut facts, ty);
        }
        let ports = function.input_attributes.iter();
        for attributes in ports.chain(&function.output_attributes) {
            collect_attributes(&mut facts, attributes);
        }
        collect_region(&mut facts, &function.types, &function.body);
    }
    facts
}

fn collect_type(facts: &mut ProgramFacts, ty: &Type) {
    match ty {
        Type::Token => {}
        Type::Tuple(types) => types.iter().for_each(|ty| collect_type(facts, ty)),
        Type::Tensor(ty) => {
            facts.bf16 |= ty.element == ElementType::Bf16;
            if facts.oversized.is_none() && is_oversized(ty) {
                facts.oversized = Some(ty.to_string());
            }
        }
    }
}

/// As drivers count: a dimension of 0 does not hide that others are too large.
fn is_oversized(ty: &RankedType) -> bool {
    let bytes = ty.dims.iter().try_fold(ty.element.size(), |bytes, &dim| {
        bytes.checked_mul(dim.max(1))
    });
    bytes.is_none_or(|bytes| i64::try_from(bytes).is_err())
}

fn collect_attributes(facts: &mut ProgramFacts, attributes: &Attributes) {
    for (name, value) in &attributes.0 {
        facts.shardy |= name.starts_with("sdy.") || name.starts_with("xla.sdy.");
        facts.gspmd |= name == "mhlo.sharding";
        facts.layout_modes |= name.contains("layout_mode");
        facts.one_function |= name == "xla_cpu_small_call";
        if let Attribute::Dict(inner) = value {
            collect_attributes(facts, inner);
        }
    }
}

fn collect_region(facts: &mut ProgramFacts, types: &[Type], region: &Region) {
    for operation in &region.operations {
        collect_operation(facts, types, operation);
        collect_attributes(facts, &operation.attributes);
        for region in &operation.regions {
            collect_region(facts, types, region);
        }
    }
}

fn collect_operation(facts: &mut ProgramFacts, types: &[Type], operation: &Operation) {
    match &operation.kind {
        OpKind::Convolution(_) => facts.convolutions = true,
        OpKind::ShardingConstraint(_)
        | OpKind::PropagationBarrier(_)
        | OpKind::ManualComputation(_) => facts.shardy = true,
        OpKind::ReduceWindow(window) => {
            let is_one = window.sizes.iter().all(|&size| size == 1);
            let is_cut = |&(low, high): &(i64, i64)| low < 0 || high < 0;
            facts.cut_window_of_one |= is_one && window.padding.iter().any(is_cut);
        }
        OpKind::CustomCall(call) => {
            let results = operation.results.iter().map(|id| &types[id.0 as usize]);
            let results: Vec<&Type> = results.collect();
            facts.untupled_top_k |=
                call.target == "TopK" && matches!(results[..], [Type::Tensor(_)]);
            if !facts.custom_calls.contains(&call.target) {
                facts.custom_calls.push(call.target.clone());
            }
        }
        _ => {}
    }
}
