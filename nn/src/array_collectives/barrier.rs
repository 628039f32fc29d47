//! Program of a barrier for one device.

use halite_core::{
    Arg, Client, CompileOptions, DType, DeviceBuffers, DeviceId, HostBytes, Loaded, Pending,
    Result, TensorType,
};
use halite_ir::{BinaryOp, Graph, Interface, Op};

/// Work for one device that finishes after everything queued on it before. One program over all
/// devices could not name the late ones: some plugins then let all devices wait.
pub(super) struct Touch {
    program: Loaded,
    token: DeviceBuffers,
}

impl Touch {
    pub(super) fn new(client: &Client, device: DeviceId) -> Result<Self> {
        let ty = TensorType::scalar(DType::S32);
        let mut graph = Graph::new();
        let token = graph.input(ty.clone());
        let next = graph.push(Op::Binary(BinaryOp::Add), &[token, token], None)?[0];
        graph.set_outputs(vec![next]);
        let program = halite_ir::program(&graph, &Interface::new("barrier"))?;
        Ok(Touch {
            program: client.compile(
                &program,
                &CompileOptions {
                    devices: vec![device],
                    ..CompileOptions::default()
                },
            )?,
            token: client.upload(HostBytes::Borrowed(&[0; 4]), &ty, device.into())?,
        })
    }

    pub(super) fn queue(&self) -> Result<Pending<()>> {
        let outputs = self.program.launch(vec![Arg::Borrow(&self.token)])?;
        Ok(outputs[0].first().ready()?.pending("barrier"))
    }
}
