//! Times lowering and compiling of a workload's training step, in the protocol of
//! `peers/README.md`: each "step" lowers or compiles it once.
//!
//! `lowering lower w4` makes a program of the optimized graph, `lowering trace w4` of the traced
//! function, and `lowering compile w4` compiles the program for the embedded executor.
//! `compare-commits` builds this file in the trees of older commits.
#![forbid(unsafe_code)]

use std::{hint::black_box, io::BufRead, process::ExitCode, time::Instant};

use halite::{
    CompileOptions, DTypePolicy, Error, MeshShape, Result,
    backends::{Accelerator, CompileCacheOptions, OpenOptions},
    core::Capabilities,
    ir::{self, Interface},
    nn::{Function, Optimizer, ShardedType, Tensor, Trace, grad, lower},
    train::{State, Strategy},
    tree::Leaf,
};
use halite_benches::{Forward, Visitor, Workload, exit_code, visit};
use halite_fetch::Quiet;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let stage = arguments.next().unwrap_or_default();
    let workload = arguments.next().unwrap_or_default();
    exit_code(visit(&workload, Lowering { stage }))
}

struct Lowering {
    stage: String,
}

impl Visitor for Lowering {
    type Output = ();

    fn visit<M: Forward, O: Optimizer + Clone>(self, workload: Workload<M, O>) -> Result<()> {
        let mesh = MeshShape::single();
        let strategy = Strategy::default();
        let state = strategy.state_specs::<M, O>(&mesh, &workload.model, &workload.optimizer)?;
        let whole = |ty| Leaf(ShardedType::replicated(ty));
        let batch = (
            whole(workload.x.ty().clone()),
            whole(workload.y.ty().clone()),
        );
        let step = Function::<State<M, O::Slot, ()>, (Leaf<()>, Leaf<()>), Leaf<()>>::new(
            |cx: &Trace, state: State<M, O::Slot, Tensor<'_>>, (Leaf(x), Leaf(y))| {
                state.set_training_mode(cx);
                let loss = M::loss(&state.model, x, y);
                let gradients = grad(loss, &state.model);
                (state.update(gradients), Leaf(loss))
            },
        )
        .precision(DTypePolicy::F32);
        let lowered =
            |capabilities: &Capabilities| lower(&step, &state, &batch, &mesh, capabilities);
        match &*self.stage {
            "trace" => serve(|| {
                black_box(lowered(&Capabilities::PORTABLE)?);
                Ok(())
            }),
            "lower" => {
                let graph = lowered(&Capabilities::PORTABLE)?.graph;
                serve(|| {
                    black_box(ir::program(&graph, &Interface::new("step"))?);
                    Ok(())
                })
            }
            "compile" => {
                let compile_cache: CompileCacheOptions = "off".parse()?;
                let options = OpenOptions {
                    compile_cache: Some(compile_cache),
                    ..OpenOptions::default()
                };
                let embedded: Accelerator = "embedded".parse()?;
                let client = embedded.open_with(&options, &mut Quiet)?.client;
                let program = lowered(&client.capabilities())?.program;
                serve(|| {
                    black_box(client.compile(&program, &CompileOptions::default())?);
                    Ok(())
                })
            }
            other => Err(Error::invalid(
                "stage",
                format!("unknown stage `{other}`; expected trace, lower or compile"),
            )),
        }
    }
}

/// Runs `once` as often as the lines of standard input say.
fn serve(once: impl Fn() -> Result<()>) -> Result<()> {
    once()?;
    println!("READY {{}}");
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap_or_default();
        let count = line
            .strip_prefix("RUN ")
            .and_then(|count| count.trim().parse().ok());
        let Some(count) = count else { break };
        let started = Instant::now();
        for _ in 0..u32::max(count, 1) {
            once()?;
        }
        println!("DONE {:.9}", started.elapsed().as_secs_f64());
    }
    println!("BYE {{}}");
    Ok(())
}
