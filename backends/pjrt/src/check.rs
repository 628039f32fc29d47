//! Checks of programs and options before a compiler sees them.

use halite_core::{Code, CompileOptions, DeviceId, FlagValue, Program, ProgramFacts, Signature};

use crate::{
    hostile::{refusal, refusal_of_code},
    options::Assignment,
};

/// Refuses programs and options that no compiler takes, or that are known to end the process.
pub(crate) fn check_program(
    program: &Program,
    facts: &ProgramFacts,
    options: &CompileOptions,
) -> Result<(), String> {
    check_counts(program)?;
    if is_empty(&program.code) {
        return Err("has no code".to_owned());
    }
    check_annotations(program, facts)?;
    check_flags(facts, &options.flags)?;
    if let Some(reason) = refusal(&program.signature, &options.flags) {
        return Err(reason);
    }
    if let Some(reason) = refusal_of_code(facts) {
        return Err(reason);
    }
    check_donated(&program.signature)
}

fn is_empty(code: &Code) -> bool {
    matches!(code, Code::Bytes(bytes) if bytes.is_empty())
}

/// Checks that at least one device runs the program, and that all can have ids.
fn check_counts(program: &Program) -> Result<(), String> {
    let (replicas, partitions) = (program.replicas, program.partitions);
    if partitions == 0 || replicas == 0 {
        return Err(format!(
            "has {replicas} replicas of {partitions} partitions; at least 1 device must run it"
        ));
    }
    let devices = replicas.checked_mul(partitions);
    if devices.is_none_or(|devices| devices > i32::MAX as usize) {
        return Err(format!(
            "has {replicas} replicas of {partitions} partitions; a program runs on at most {} \
             devices",
            i32::MAX
        ));
    }
    Ok(())
}

/// Checks the annotations for partitioners.
fn check_annotations(program: &Program, facts: &ProgramFacts) -> Result<(), String> {
    if facts.shardy && facts.gspmd {
        return Err(
            "mixes `sdy` and `mhlo.sharding` annotations; the partitioners take one kind each"
                .to_owned(),
        );
    }
    let is_wrong = |size: &&usize| **size > 1 && **size != program.partitions;
    if let Some(size) = facts.mesh_sizes.iter().find(is_wrong) {
        // libtpu ends the process on some of these.
        return Err(format!(
            "has a mesh of {size} devices and {} partitions; a mesh is over all partitions",
            program.partitions
        ));
    }
    Ok(())
}

/// Checks the names of compiler flags, and for flags that can end the process.
fn check_flags(facts: &ProgramFacts, flags: &[(String, FlagValue)]) -> Result<(), String> {
    for (name, value) in flags {
        if name.is_empty() || name.starts_with('-') {
            return Err(format!(
                "flag `{name}`: write the name without leading dashes, such as `xla_dump_to`"
            ));
        }
        if facts.convolutions && may_crash_convolutions(name, value) {
            return Err(format!(
                "flag `{name}` on a program with convolutions can end the process; compile it \
                 without this flag"
            ));
        }
    }
    Ok(())
}

/// Returns whether a flag enables oneDNN, which was seen to end the process on programs with
/// convolutions.
fn may_crash_convolutions(name: &str, value: &FlagValue) -> bool {
    // What is not plainly off may be read as on.
    let off = match value {
        FlagValue::Bool(value) => !value,
        FlagValue::Str(value) => ["", "false", "0"].contains(&&**value),
        FlagValue::Int(_) | FlagValue::Float(_) => false,
    };
    name.starts_with("xla_cpu_") && name.contains("onednn") && !off
}

pub(crate) fn check_donated(signature: &Signature) -> Result<(), String> {
    let (donated, inputs) = (&signature.donated, signature.inputs.len());
    if donated.iter().any(|index| *index >= inputs)
        || donated.windows(2).any(|pair| pair[0] >= pair[1])
    {
        return Err(format!(
            "donated inputs {donated:?} are not ascending indices of {inputs} inputs"
        ));
    }
    Ok(())
}

/// The devices for each replica and partition, all known and different: those of `given`, or else
/// the first ones of `first`.
pub(crate) fn assign(
    replicas: usize,
    partitions: usize,
    given: &[DeviceId],
    first: Vec<DeviceId>,
    known: &[DeviceId],
) -> Result<Assignment, String> {
    let needed = replicas * partitions;
    let ids = if given.is_empty() {
        &first[..needed.min(first.len())]
    } else {
        given
    };
    if ids.len() != needed {
        let (got, from) = (
            ids.len(),
            if given.is_empty() {
                "are available"
            } else {
                "were given"
            },
        );
        return Err(format!(
            "needs {needed} devices ({replicas} replicas of {partitions} partitions), {got} {from}"
        ));
    }
    for (index, id) in ids.iter().enumerate() {
        if ids[..index].contains(id) {
            return Err(format!("device {} is given twice", id.0));
        }
        if !known.contains(id) {
            let known: Vec<_> = known.iter().map(|id| id.0).collect();
            return Err(format!(
                "unknown device {}; expected one of {known:?}",
                id.0
            ));
        }
    }
    Ok(Assignment {
        replicas,
        partitions,
        ids: ids.iter().map(|id| id.0).collect(),
    })
}
