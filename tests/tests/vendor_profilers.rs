//! The profilers of vendors' plugins, which record the work of the host on machines without the
//! device too.

use std::sync::Arc;

use halite_backends::{OpenOptions, Target};
use halite_core::{CompileOptions, DType, Program, Signature, TensorType};
use halite_fetch::Quiet;

#[test]
fn compiling_for_an_absent_device_is_recorded() {
    for target in ["cuda:h100:1x1", "tpu:v5e:1x1"] {
        let open = target
            .parse::<Target>()
            .unwrap()
            .open(&OpenOptions::default(), &mut Quiet)
            .unwrap();
        let profiler = open
            .plugin()
            .profiler()
            .unwrap_or_else(|| panic!("{target}: its plugin has a profiler"));
        let profiling = profiler.start().unwrap();
        let code = "module @f { func.func public @main() -> tensor<f32> {
            %0 = stablehlo.constant dense<1.0> : tensor<f32>
            return %0 : tensor<f32>
        } }";
        let signature = Signature {
            inputs: vec![],
            outputs: vec![TensorType::new(DType::F32, [])],
            donated: vec![],
        };
        let program = Program {
            name: "f".into(),
            code: Arc::from(code.as_bytes()),
            signature,
            partitions: 1,
            replicas: 1,
            facts: None,
        };
        open.compile(&program, &CompileOptions::default()).unwrap();
        let recorded = profiling.stop().unwrap();
        // The first field of an `XSpace` is a plane; this is the name of the host's.
        assert_eq!(
            recorded.first(),
            Some(&0x0a),
            "{target}: {} bytes",
            recorded.len()
        );
        let name = b"/host:CPU";
        assert!(
            recorded.windows(name.len()).any(|bytes| bytes == name),
            "{target}: {} bytes",
            recorded.len()
        );
    }
}
