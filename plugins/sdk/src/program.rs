//! Programs of callers: the C API passes a program without the types of its arguments and results,
//! which a backend needs to compile it.

use halite_core::{Error, Program, Result};
use halite_stablehlo::{Interface, Module, Version};

use crate::{device_layout, status::Outcome};

/// The newest version of StableHLO that plugins accept; callers downgrade programs to it.
pub(crate) const NEWEST_STABLEHLO: Version = Version::NEWEST;
/// The oldest version of StableHLO that plugins accept.
pub(crate) const OLDEST_STABLEHLO: Version = Version::OLDEST;

/// Reads the interface of a program, as text or as a portable artifact, for this many devices.
///
/// # Errors
/// INVALID_ARGUMENT if it is not a valid program; UNIMPLEMENTED for types that halite does not
/// have.
pub(crate) fn read(code: &[u8], replicas: usize, partitions: usize) -> Outcome<Interface> {
    let mut module = Module::read(code)?;
    module.set_devices(replicas, partitions);
    module.verify()?;
    device_layout::check(&module)?;
    Ok(module.interface()?)
}

/// Reads and verifies a program, so that a compiler may rely on
/// [what `Module::verify` promises](Module::verify).
///
/// # Errors
/// If the code is not a valid program, or the signature is not the program's. They name the program
/// and the operation.
pub fn parse(program: &Program) -> Result<Module> {
    let read = || {
        let mut module = Module::from_code(&program.code)?;
        module.set_devices(program.replicas, program.partitions);
        module.verify()?;
        module.interface()?.check_signature(&program.signature)?;
        Ok(module)
    };
    read().map_err(|error: Error| {
        let message = format!("`{}`: {}", program.name, error.message());
        Error::new(error.kind(), "compile", message)
    })
}

#[cfg(test)]
mod tests {
    use halite_core::{DType, TensorType};

    use super::*;

    #[test]
    fn signature_is_that_of_main() {
        let code = "module @step {
            func.func public @main(%a: tensor<2x3xf32> {tf.aliasing_output = 0 : i32}, %b: tensor<ui8>)
              -> (tensor<2x3xf32> {jax.result_info = \"(\"}) {
              return %a : tensor<2x3xf32>
            }
        }";
        let program = read(code.as_bytes(), 1, 1).unwrap();
        let f32 = TensorType::new(DType::F32, [2, 3]);
        assert_eq!(&*program.name, "step");
        let signature = program.signature();
        assert_eq!(
            signature.inputs,
            [f32.clone(), TensorType::new(DType::U8, [])]
        );
        assert_eq!(signature.outputs, [f32]);
        assert_eq!(signature.donated, [0]);
    }

    #[test]
    fn shards_are_the_types_of_partitions() {
        let code = "func.func @main(%a: tensor<8xf32> {mhlo.sharding = \"{devices=[4]<=[4]}\"})
              -> (tensor<8xf32> {mhlo.sharding = \"{replicated}\"}) {
              return %a : tensor<8xf32>
            }";
        let program = read(code.as_bytes(), 1, 4).unwrap();
        assert_eq!(program.inputs[0].shard.dims(), [2]);
        assert_eq!(program.outputs[0].shard.dims(), [8]);
    }

    #[test]
    fn other_programs_are_errors() {
        for (code, word) in [
            (&b"module { }"[..], "no function `main`"),
            (b"ML\xefR", "byte 4"),
            (b"\xff", "UTF-8"),
            (b"func.func @main(", "line 1"),
            (b"func.func @main(%a: tensor<?xf32>) { return }", "dynamic"),
        ] {
            let message = read(code, 1, 1).unwrap_err().message;
            assert!(message.contains(word), "{message}");
        }
    }
}
