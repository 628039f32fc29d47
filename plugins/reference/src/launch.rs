//! Launches: one job for all devices where their processes run in lockstep, else one for each
//! replica.
//!
//! A job runs on the queue of its first device. It waits for the inputs of all its devices,
//! assembles them, runs the program once, and delivers the shards of the results. Jobs wait for
//! results of earlier launches only, so that the oldest one can always go on.

use std::{
    fmt,
    ops::Range,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use halite_core::{HloSharding, Interpreted, Result};
use halite_kernels::Threads;
use halite_stablehlo::Module;

use crate::{
    device::Meter,
    failure::Failure,
    fast::{self, Plan, Process},
    oracle::{LAUNCH, Partitioning, Tensor, Value, World, guarded, run_main},
    shards::{assemble, shards},
    slot::{Promise, Slot},
    storage::{Aligned, Storage},
};

/// Nanoseconds in the oracle from which on a program is worth a warning.
const WORTH_A_WARNING: u64 = 100_000_000;

/// What the launches of an executable share.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) module: Arc<Module>,
    /// The plan of the fast mode, and the threads that run its kernels.
    pub(crate) fast: Option<(Plan, Arc<Threads>)>,
    pub(crate) partitioning: Partitioning,
    pub(crate) replicas: usize,
    pub(crate) partitions: usize,
    pub(crate) name: Arc<str>,
    /// Operations of the fast mode that the oracle computes.
    pub(crate) interpreted: Vec<Interpreted>,
    pub(crate) slowness: Slowness,
}

/// Whether a warning about interpreted operations is due.
#[derive(Debug, Default)]
pub(crate) struct Slowness {
    /// Nanoseconds of all jobs so far.
    spent: AtomicU64,
    is_reported: AtomicBool,
}

/// A job that runs.
#[derive(Debug)]
pub(crate) struct Running {
    program: Arc<Ready>,
    world: Arc<World>,
    since: Instant,
}

impl fmt::Display for Running {
    /// `` `step` has been running for 61 s, now `sort` of f8E4M3FN in the exact interpreter ``
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.since.elapsed().as_secs();
        write!(
            f,
            "`{}` has been running for {seconds} s",
            self.program.name
        )?;
        match self.world.interpreted() {
            Some(operation) => write!(f, ", now {operation} in the exact interpreter"),
            None if self.program.fast.is_none() => f.write_str(", in the exact interpreter"),
            None => Ok(()),
        }
    }
}

impl Ready {
    /// The warning that the oracle computes much of what took `took` and the jobs before, once.
    fn slow_warning(&self, took: Duration) -> Option<String> {
        let took = took.as_nanos() as u64;
        let spent = self.slowness.spent.fetch_add(took, Relaxed) + took;
        let nanoseconds = |it: &Interpreted| it.nanoseconds.load(Relaxed);
        let slow: u64 = self.interpreted.iter().map(nanoseconds).sum();
        if slow < WORTH_A_WARNING
            || slow < spent / 10
            || self.slowness.is_reported.swap(true, Relaxed)
        {
            return None;
        }
        let mut operations: Vec<_> = self.interpreted.iter().collect();
        operations.sort_by_key(|it| std::cmp::Reverse(nanoseconds(it)));
        let percent = |part: u64| (100.0 * part as f64 / spent.max(1) as f64).min(100.0);
        let named: Vec<_> = (operations.iter().take(5))
            .map(|it| format!("{it} ({:.0} %)", percent(nanoseconds(it))))
            .collect();
        Some(format!(
            "`{}` spends {:.0} % of its time in the exact interpreter, as the embedded executor \
             has no kernel for {}; see docs/how-to-find-what-is-wrong.md",
            self.name,
            percent(slow),
            named.join(", ")
        ))
    }

    pub(crate) fn plan(&self) -> Option<&Plan> {
        self.fast.as_ref().map(|(plan, _)| plan)
    }

    /// The replicas of each job of a launch.
    pub(crate) fn jobs(&self) -> Vec<Range<usize>> {
        match self.plan() {
            Some(plan) if plan.links.joins_replicas && !plan.links.needs_threads => {
                vec![0..self.replicas]
            }
            _ => (0..self.replicas)
                .map(|replica| replica..replica + 1)
                .collect(),
        }
    }
}

/// A part of a launch that runs at once.
pub(crate) struct Job {
    pub(crate) program: Arc<Ready>,
    pub(crate) world: Arc<World>,
    pub(crate) replicas: Range<usize>,
    /// Whether it takes less time than to wake another thread.
    pub(crate) is_short: bool,
    /// Of each of its devices.
    pub(crate) inputs: Vec<Vec<Arc<Slot>>>,
    pub(crate) outputs: Vec<Outputs>,
    /// All jobs of the client that run.
    pub(crate) running: Arc<Mutex<Vec<Arc<Running>>>>,
}

/// The results on a device.
pub(crate) struct Outputs {
    pub(crate) promises: Vec<Promise>,
    pub(crate) memory: Arc<Meter>,
}

impl Job {
    /// Runs it, and delivers the results or the error.
    pub(crate) fn run(mut self) {
        let outputs = std::mem::take(&mut self.outputs);
        let (world, first) = (
            self.world.clone(),
            self.replicas.start * self.program.partitions,
        );
        let result = guarded(|| self.evaluate()).map_err(Failure::from);
        let ended = result.as_ref().map(|_| ()).map_err(Clone::clone);
        world.end(&LAUNCH, first, ended);
        match result {
            Ok(all) => {
                for (outputs, tensors) in outputs.into_iter().zip(all) {
                    let Outputs { promises, memory } = outputs;
                    for (promise, tensor) in promises.into_iter().zip(tensors) {
                        promise.fulfill(Ok(tensor), |bytes| memory.charge(bytes));
                    }
                }
            }
            Err(failure) => {
                for Outputs { promises, memory } in outputs {
                    for promise in promises {
                        promise.fulfill(Err(failure.clone()), |bytes| memory.charge(bytes));
                    }
                }
            }
        }
    }

    /// Returns whether all inputs are there.
    pub(crate) fn has_inputs(&self) -> bool {
        self.inputs.iter().flatten().all(|slot| slot.is_delivered())
    }

    /// The results on each device.
    fn evaluate(mut self) -> Result<Vec<Vec<Tensor>>> {
        let program = self.program.clone();
        let mut rows = Vec::with_capacity(self.inputs.len());
        for slots in &self.inputs {
            let tensors = slots.iter().map(|slot| slot.wait());
            rows.push(tensors.collect::<Result<Vec<_>>>()?);
        }
        // The program alone holds what was donated, or dropped since the launch.
        self.inputs.clear();
        let running = Arc::new(Running {
            program: program.clone(),
            world: self.world.clone(),
            since: Instant::now(),
        });
        let all_running = || self.running.lock().unwrap_or_else(PoisonError::into_inner);
        all_running().push(running.clone());
        let result = self.run_on(rows);
        all_running().retain(|other| !Arc::ptr_eq(other, &running));
        if !program.interpreted.is_empty()
            && let Some(warning) = program.slow_warning(running.since.elapsed())
        {
            halite_core::warning!("{warning}");
        }
        result
    }

    /// The results on each device, of the inputs on each.
    fn run_on(&self, rows: Vec<Vec<Tensor>>) -> Result<Vec<Vec<Tensor>>> {
        let program = &self.program;
        let mut rows = rows.into_iter();
        let mut inputs = Vec::with_capacity(self.replicas.len());
        for _ in self.replicas.clone() {
            inputs.push(program.assemble(rows.by_ref().take(program.partitions).collect())?);
        }
        let mut all = Vec::new();
        for results in self.run_replicas(inputs)? {
            all.append(&mut program.shard(results)?);
        }
        Ok(all)
    }

    /// The results of each replica.
    fn run_replicas(&self, inputs: Vec<Vec<Tensor>>) -> Result<Vec<Vec<Tensor>>> {
        let (module, world) = (&*self.program.module, &*self.world);
        let Some((plan, threads)) = &self.program.fast else {
            let run = |(replica, inputs): (_, Vec<Tensor>)| {
                let inputs = inputs.into_iter().map(Value::Tensor).collect();
                let results = run_main(module, world, [replica, 0], inputs)?;
                let results = results.iter().map(|value| value.tensor().cloned());
                results.collect()
            };
            let started = Instant::now();
            let results = self.replicas.clone().zip(inputs).map(run).collect();
            for whole in &self.program.interpreted {
                let took = started.elapsed().as_nanos() as u64;
                whole.nanoseconds.fetch_add(took, Relaxed);
            }
            return results;
        };
        let launch = fast::Launch {
            module,
            world,
            threads,
        };
        let processes = self.replicas.clone().map(|replica| Process {
            replica,
            partition: 0,
        });
        let processes: Vec<_> = processes.collect();
        // The kernels' threads are woken once, unless one would wait for another job.
        if plan.links.needs_threads || self.is_short {
            plan.run(&launch, &processes, inputs)
        } else {
            threads.run(|| plan.run(&launch, &processes, inputs))
        }
    }
}

impl Ready {
    /// The inputs of a replica from those of its partitions.
    fn assemble(&self, mut rows: Vec<Vec<Tensor>>) -> Result<Vec<Tensor>> {
        if self.partitions == 1 {
            return Ok(rows.pop().unwrap_or_default());
        }
        let main = self.module.main()?;
        let mut columns: Vec<Vec<(usize, Tensor)>> = Vec::new();
        columns.resize_with(main.body.arguments.len(), Vec::new);
        for (partition, row) in rows.into_iter().enumerate() {
            for (column, tensor) in columns.iter_mut().zip(row) {
                column.push((partition, tensor));
            }
        }
        let whole = |((shards, &id), sharding): ((Vec<_>, _), &HloSharding)| {
            let ty = main.ty(id).as_tensor();
            let ty = ty.expect("the signature has tensors");
            let take = || Ok(Storage::Aligned(Aligned::zeros(ty.bytes())));
            assemble(shards, sharding, ty, take)
        };
        let columns = columns.into_iter().zip(&main.body.arguments);
        columns.zip(&self.partitioning.inputs).map(whole).collect()
    }

    /// The results of the partitions of a replica.
    fn shard(&self, results: Vec<Tensor>) -> Result<Vec<Vec<Tensor>>> {
        if self.partitions == 1 {
            return Ok(vec![results]);
        }
        let partitions: Vec<_> = (0..self.partitions).collect();
        let mut rows = vec![Vec::with_capacity(results.len()); self.partitions];
        for (tensor, sharding) in results.iter().zip(&self.partitioning.outputs) {
            for (row, shard) in rows.iter_mut().zip(shards(tensor, sharding, &partitions)?) {
                row.push(shard);
            }
        }
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use halite_core::{
        Arg, Backend, CompileOptions, DType, Device, Executable, HostBytes, Launch, Program,
        Signature, TensorType, custom_call, wait::Work,
    };

    use super::*;
    use crate::{Options, Reference};

    const ENDLESS: &str = "func.func public @main(%x: tensor<f32>) -> tensor<f32> {
      %0 = stablehlo.while(%v = %x) : tensor<f32>
      cond {
        %true = stablehlo.constant dense<true> : tensor<i1>
        stablehlo.return %true : tensor<i1>
      } do {
        stablehlo.return %v : tensor<f32>
      }
      return %0 : tensor<f32>
    }";

    fn program(code: &str) -> Program {
        let ty = TensorType::new(DType::F32, []);
        Program {
            name: Arc::from("step"),
            code: Arc::from(code.as_bytes()),
            signature: Signature {
                inputs: vec![ty.clone()],
                outputs: vec![ty],
                donated: Vec::new(),
            },
            partitions: 1,
            replicas: 1,
            facts: None,
        }
    }

    #[test]
    fn long_waits_say_what_runs() {
        let reference = Reference::new(&Options::default()).expect("it starts");
        let options = CompileOptions::default();
        let program = program(ENDLESS);
        let executable = Backend::compile(&reference, &program, &options).expect("it compiles");
        let [ty] = &program.signature.inputs[..] else {
            panic!("the program has one input");
        };
        let place = reference.devices()[0].id().into();
        let x = reference
            .upload(HostBytes::Borrowed(&[0; 4]), ty, place)
            .expect("it uploads");
        let args = vec![vec![Arg::Borrow(&x)]];
        let _outputs = executable.launch(Launch { args }).expect("it is queued");
        let client = executable.client.clone();
        let progress = loop {
            if let Some(progress) = client.progress() {
                break progress;
            }
            std::thread::yield_now();
        };
        assert_eq!(progress, "`step` has been running for 0 s");
    }

    #[test]
    fn interpreted_operations_are_reported_once() {
        let reference = Reference::new(&Options::default()).expect("it starts");
        let code = "func.func public @main(%x: tensor<f32>) -> tensor<f32> {
          stablehlo.custom_call @check.expect_eq(%x, %x) {has_side_effect = true}
            : (tensor<f32>, tensor<f32>) -> ()
          return %x : tensor<f32>
        }";
        let options = CompileOptions::default();
        let executable =
            Backend::compile(&reference, &program(code), &options).expect("it compiles");
        let program = &executable.program;
        let [call] = &program.interpreted[..] else {
            panic!("{:?}", program.interpreted);
        };
        let millis = Duration::from_millis;
        assert_eq!(program.slow_warning(millis(1000)), None);
        call.nanoseconds.store(430_000_000, Relaxed);
        let warning = program.slow_warning(millis(0)).expect("it is slow");
        let expected = "`step` spends 43 % of its time in the exact interpreter, as the embedded \
                        executor has no kernel for `check.expect_eq` of f32 (43 %); see";
        assert!(warning.starts_with(expected), "{warning}");
        assert_eq!(program.slow_warning(millis(0)), None);
    }

    #[test]
    fn donated_state_of_several_devices_is_updated_in_place() {
        let split = r#"{sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}"#;
        let code = format!(
            r#"module @step attributes {{mhlo.num_partitions = 4 : i32}} {{
              sdy.mesh @mesh = <["x"=4]>
              func.func public @main(%x: tensor<64xf32> {split}, %r: tensor<16xf32>)
                  -> (tensor<64xf32> {split}, tensor<16xf32>) {{
                %0 = stablehlo.add %x, %x : tensor<64xf32>
                %1 = stablehlo.add %r, %r : tensor<16xf32>
                return %0, %1 : tensor<64xf32>, tensor<16xf32>
              }}
            }}"#
        );
        let ty = TensorType::new(DType::F32, [16]);
        let program = Program {
            signature: Signature {
                inputs: vec![ty.clone(); 2],
                outputs: vec![ty.clone(); 2],
                donated: vec![0, 1],
            },
            partitions: 4,
            ..program(&code)
        };
        let options = Options {
            devices: 4,
            ..Options::default()
        };
        let reference = Reference::new(&options).expect("it starts");
        let options = CompileOptions::default();
        let executable = Backend::compile(&reference, &program, &options).expect("it compiles");
        let bytes = 1f32.to_le_bytes().repeat(16);
        let upload = |device: &crate::ReferenceDevice| {
            let bytes = || HostBytes::Borrowed(&bytes);
            let buffer = || reference.upload(bytes(), &ty, device.id().into());
            vec![buffer().expect("it uploads"), buffer().expect("it uploads")]
        };
        let mut rows: Vec<_> = reference.devices().iter().map(upload).collect();
        let mut memory = Vec::new();
        for _ in 0..4 {
            let donate = |row: Vec<_>| row.into_iter().map(Arg::Donate).collect();
            let args = rows.into_iter().map(donate).collect();
            rows = executable
                .launch(Launch { args })
                .expect("it is queued")
                .outputs;
            let address = |buffer: &crate::ReferenceBuffer| {
                buffer.slot.wait().expect("it runs").bytes.as_ptr().addr()
            };
            memory.push([0, 1].map(|at| address(&rows[0][at])));
        }
        // Uploads have a copy on each device; what a launch returns is shared.
        assert_eq!(memory[1..3], memory[2..4]);
        let mut read = vec![0; 64];
        halite_core::Buffer::read(&rows[3][0], &mut read).expect("it reads");
        assert_eq!(read, 16f32.to_le_bytes().repeat(16));
    }

    #[test]
    fn effects_have_the_order_of_launches() {
        static ORDER: Mutex<Vec<usize>> = Mutex::new(Vec::new());
        custom_call::register("launch.order", |call| {
            let devices = call.attributes().int("devices")? as usize;
            // The launch over several devices would be the later one.
            std::thread::sleep(Duration::from_millis(20 * (devices as u64 - 1)));
            ORDER.lock().expect("no panic").push(devices);
            let ([x], [y]) = call.buffers()?;
            y.bytes_mut().copy_from_slice(x.bytes());
            Ok(())
        })
        .expect("the name is free");
        let options = Options {
            devices: 4,
            ..Options::default()
        };
        let reference = Reference::new(&options).expect("it starts");
        let devices = reference.devices();
        let launch = |on: &[crate::ReferenceDevice]| {
            let count = on.len();
            let code = format!(
                r#"module @step attributes {{mhlo.num_partitions = {count} : i32}} {{
                  func.func public @main(%x: tensor<f32>) -> tensor<f32> {{
                    %0 = stablehlo.custom_call @launch.order(%x) {{has_side_effect = true,
                      api_version = 4 : i32, backend_config = {{devices = {count} : i64}}}}
                      : (tensor<f32>) -> tensor<f32>
                    return %0 : tensor<f32>
                  }}
                }}"#
            );
            let program = Program {
                partitions: count,
                ..program(&code)
            };
            let options = CompileOptions {
                devices: on.iter().map(Device::id).collect(),
                ..CompileOptions::default()
            };
            let executable = Backend::compile(&reference, &program, &options).expect("compiles");
            let ty = &program.signature.inputs[0];
            let upload = |device: &crate::ReferenceDevice| {
                let upload = reference.upload(HostBytes::Borrowed(&[0; 4]), ty, device.id().into());
                upload.expect("it uploads")
            };
            let buffers: Vec<_> = on.iter().map(upload).collect();
            let args = buffers.iter().map(|buffer| vec![Arg::Borrow(buffer)]);
            let args = args.collect();
            executable
                .launch(Launch { args })
                .expect("it is queued")
                .outputs
        };
        let outputs = [launch(devices), launch(&devices[2..3])];
        for buffer in outputs.iter().flatten().flatten() {
            buffer.slot.wait().expect("it runs");
        }
        assert_eq!(*ORDER.lock().expect("no panic"), [4, 1]);
    }
}
