//! Sets of variables as launchers make them, with the place that says so.

use super::{Recognized, Source};

fn recognize(variables: &[(&str, &str)]) -> halite_core::Result<Recognized> {
    let find = |name: &str| variables.iter().find(|(other, _)| *other == name);
    Recognized::from(|name| find(name).map(|(_, value)| (*value).to_owned()))
}

#[track_caller]
fn check(
    variables: &[(&str, &str)],
    source: Source,
    (rank, size): (usize, usize),
    coordinator: Option<&str>,
) {
    let job = recognize(variables).unwrap();
    assert_eq!((job.source, job.rank, job.size), (source, rank, size));
    assert_eq!(job.coordinator.as_deref(), coordinator);
}

#[track_caller]
fn refused(variables: &[(&str, &str)], expected: &str) {
    let error = recognize(variables).unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
}

/// Seen under `mpiexec -n 4` of MPICH 5.0.2.
const HYDRA: [(&str, &str); 5] = [
    ("PMI_RANK", "1"),
    ("PMI_SIZE", "4"),
    ("PMI_FD", "7"),
    ("MPI_LOCALRANKID", "1"),
    ("MPI_LOCALNRANKS", "4"),
];

/// srun(1), "OUTPUT ENVIRONMENT VARIABLES".
const SRUN: [(&str, &str); 6] = [
    ("SLURM_JOB_ID", "4099"),
    ("SLURM_STEP_ID", "0"),
    ("SLURM_PROCID", "2"),
    ("SLURM_LOCALID", "0"),
    ("SLURM_NTASKS", "4"),
    ("SLURM_STEP_NODELIST", "tux[003-004,7]"),
];

/// pytorch.org/docs, "torchrun", "Environment Variables".
const TORCHRUN: [(&str, &str); 6] = [
    ("RANK", "5"),
    ("WORLD_SIZE", "8"),
    ("LOCAL_RANK", "1"),
    ("LOCAL_WORLD_SIZE", "2"),
    ("MASTER_ADDR", "node0"),
    ("MASTER_PORT", "29400"),
];

#[test]
fn process_without_launcher_is_alone() {
    check(&[], Source::Alone, (0, 1), None);
    check(
        &[("PATH", "/bin"), ("RANK", "1")],
        Source::Alone,
        (0, 1),
        None,
    );
}

#[test]
fn mpiexec_is_recognized() {
    check(&HYDRA, Source::Mpi, (1, 4), None);
    // What a process of a job leaves to its own children, which are not in the job.
    check(&HYDRA[..2], Source::Alone, (0, 1), None);
}

#[test]
fn slurm_is_recognized() {
    check(&SRUN, Source::Slurm, (2, 4), Some("tux003:61443"));
    let mut names = SRUN.to_vec();
    names[5].1 = "alpha,beta";
    check(&names, Source::Slurm, (2, 4), Some("alpha:61443"));
    // A batch script, sbatch(1), has no step.
    check(
        &[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")],
        Source::Alone,
        (0, 1),
        None,
    );
}

#[test]
fn steps_of_a_slurm_job_meet_apart() {
    let (mut first, mut next) = (SRUN, SRUN);
    (first[1].1, next[0].1) = ("1", "4100");
    let ports: Vec<_> = [SRUN, first, next]
        .iter()
        .map(|variables| recognize(variables).unwrap())
        .collect();
    for (index, one) in ports.iter().enumerate() {
        for other in &ports[..index] {
            assert_ne!(one.coordinator, other.coordinator);
            assert_ne!(one.identity, other.identity);
        }
    }
}

#[test]
fn processes_of_one_machine_meet_on_it() {
    for (nodes, expected) in [
        ("tux003", "localhost:61443"),
        ("tux[003]", "localhost:61443"),
        ("tux[003,7]", "tux003:61443"),
    ] {
        let mut variables = SRUN;
        variables[5].1 = nodes;
        check(&variables, Source::Slurm, (2, 4), Some(expected));
    }
    let mut variables = TORCHRUN;
    variables[3].1 = "8";
    check(
        &variables,
        Source::Torchrun,
        (5, 8),
        Some("localhost:29401"),
    );
}

#[test]
fn torchrun_is_recognized() {
    check(&TORCHRUN, Source::Torchrun, (5, 8), Some("node0:29401"));
}

/// As transformers and others take it.
#[test]
fn world_of_one_needs_nothing_else() {
    check(&[("WORLD_SIZE", "1")], Source::Alone, (0, 1), None);
    let one = [("WORLD_SIZE", "1"), ("RANK", "0"), ("MASTER_PORT", "65535")];
    check(&one, Source::Alone, (0, 1), None);
    refused(
        &[("WORLD_SIZE", "2")],
        "WORLD_SIZE=2 is set, and RANK is missing",
    );
}

/// docs.open-mpi.org, "Environment variables set by mpirun".
#[test]
fn open_mpi_is_recognized() {
    let variables = [
        ("OMPI_COMM_WORLD_RANK", "1"),
        ("OMPI_COMM_WORLD_SIZE", "2"),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
        ("PMIX_NAMESPACE", "prterun-node-77@1"),
        ("PMIX_RANK", "1"),
    ];
    let job = recognize(&variables).unwrap();
    assert_eq!((job.source, job.rank, job.size), (Source::OpenMpi, 1, 2));
    assert!(job.coordinator.unwrap().starts_with("localhost:"));
    let mut hosts = variables;
    hosts[2].1 = "1";
    refused(&hosts, "set HALITE_COORDINATOR_ADDRESS to HOST:PORT");
    let address = ("HALITE_COORDINATOR_ADDRESS", "node0");
    let hosts = [&hosts[..], &[address]].concat();
    check(&hosts, Source::OpenMpi, (1, 2), Some("node0:29500"));
}

#[test]
fn unknown_launchers_are_refused() {
    refused(&[("PMIX_RANK", "1")], "PMIX_RANK=1 is of PMIx");
    refused(
        &[("MV2_COMM_WORLD_RANK", "0"), ("MV2_COMM_WORLD_SIZE", "2")],
        "is of MVAPICH2",
    );
    let one = [("MV2_COMM_WORLD_RANK", "0"), ("MV2_COMM_WORLD_SIZE", "1")];
    check(&one, Source::Alone, (0, 1), None);
}

/// A shell in an allocation (salloc(1)), and one that is a step of it (`srun --pty`).
#[test]
fn shell_in_an_allocation_is_alone() {
    let allocation = [
        ("SLURM_JOB_ID", "7"),
        ("SLURM_NTASKS", "4"),
        ("SLURM_JOB_NODELIST", "a,b"),
    ];
    check(&allocation, Source::Alone, (0, 1), None);
    let step = [
        ("SLURM_STEP_ID", "4294967290"),
        ("SLURM_PROCID", "0"),
        ("SLURM_STEP_NUM_TASKS", "1"),
        ("PMIX_RANK", "0"),
    ];
    check(
        &[&allocation[..], &step].concat(),
        Source::Alone,
        (0, 1),
        None,
    );
}

/// Without it each process would be alone.
#[test]
fn lost_number_of_a_launcher_is_an_error() {
    let without = |variables: &[(&'static str, &'static str)], name: &str| {
        let left = variables.iter().filter(|(other, _)| *other != name);
        left.copied().collect::<Vec<_>>()
    };
    refused(
        &without(&SRUN, "SLURM_PROCID"),
        "SLURM_NTASKS=4 is set, and SLURM_PROCID is missing",
    );
    refused(
        &without(&TORCHRUN, "WORLD_SIZE"),
        "RANK=5 MASTER_ADDR=node0 is set, and WORLD_SIZE is missing",
    );
}

#[test]
fn forgotten_half_of_a_launcher_is_told() {
    let told = |variables: &[(&str, &str)]| {
        let find = |name: &str| variables.iter().find(|(other, _)| *other == name);
        super::unused(|name| find(name).map(|(_, value)| (*value).to_owned())).unwrap_or_default()
    };
    let pod = ("JOB_COMPLETION_INDEX", "3");
    assert!(told(&[pod]).contains("without HALITE_NUM_PROCESSES"));
    assert_eq!(told(&[pod, ("HALITE_NUM_PROCESSES", "1")]), "");
    let batch = ("SLURM_NTASKS", "4");
    assert!(told(&[batch]).contains("srun starts 4 of them"));
    assert_eq!(told(&[batch, ("SLURM_STEP_ID", "0")]), "");
    assert_eq!(told(&[("SLURM_NTASKS", "1")]), "");
    assert_eq!(told(&[]), "");
}

#[test]
fn addresses_of_both_families_are_read() {
    for (address, expected) in [
        ("node0", "node0:29500"),
        ("node0:7000", "node0:7000"),
        ("10.0.0.1:7000", "10.0.0.1:7000"),
        ("::1", "[::1]:29500"),
        ("[::1]", "[::1]:29500"),
        ("[::1]:7000", "[::1]:7000"),
        ("2001:db8::7", "[2001:db8::7]:29500"),
    ] {
        let variables = [
            ("HALITE_PROCESS_ID", "1"),
            ("HALITE_NUM_PROCESSES", "2"),
            ("HALITE_COORDINATOR_ADDRESS", address),
        ];
        check(&variables, Source::Explicit, (1, 2), Some(expected));
    }
    let mut variables = TORCHRUN;
    variables[4].1 = "::1";
    check(&variables, Source::Torchrun, (5, 8), Some("[::1]:29401"));
    variables[4].1 = "node0:29400";
    refused(&variables, "MASTER_ADDR has the port 29400");
    for address in [
        "",
        "node0:",
        "node0:0",
        "node0:70000",
        "[::1",
        "[node0]",
        "a b",
        "::1:x",
        "-x",
        "4294967296",
        "10.0.0.1.5:7000",
    ] {
        let variables = [
            ("HALITE_PROCESS_ID", "1"),
            ("HALITE_NUM_PROCESSES", "2"),
            ("HALITE_COORDINATOR_ADDRESS", address),
        ];
        refused(&variables, "HALITE_COORDINATOR_ADDRESS");
    }
}

#[test]
fn indexed_job_is_recognized() {
    // kubernetes.io/docs, "Jobs", "Completion mode"; the manifest sets the other two.
    let variables = [
        ("JOB_COMPLETION_INDEX", "3"),
        ("HALITE_NUM_PROCESSES", "4"),
        ("HALITE_COORDINATOR_ADDRESS", "train-0.train"),
    ];
    check(
        &variables,
        Source::Kubernetes,
        (3, 4),
        Some("train-0.train:29500"),
    );
    refused(&variables[..2], "HALITE_COORDINATOR_ADDRESS is missing");
}

#[test]
fn explicit_configuration_counts_first() {
    let explicit = [
        ("HALITE_PROCESS_ID", "1"),
        ("HALITE_NUM_PROCESSES", "2"),
        ("HALITE_COORDINATOR_ADDRESS", "10.0.0.1:7000"),
    ];
    let variables = [&explicit[..], &SRUN, &TORCHRUN].concat();
    check(&variables, Source::Explicit, (1, 2), Some("10.0.0.1:7000"));
    refused(
        &explicit[..1],
        "HALITE_PROCESS_ID=1 is set, and HALITE_NUM_PROCESSES is missing",
    );
}

/// cloud.google.com/tpu, "Cloud TPU VM environment variables", and the variables that JAX reads
/// (`jax/_src/clusters/cloud_tpu_cluster.py`): hosts, id of the worker, process and size of the
/// job.
#[test]
fn tpu_hosts_are_recognized() {
    // v4-8 and v5e-8 have one host.
    let one = [
        ("TPU_WORKER_HOSTNAMES", "localhost"),
        ("TPU_WORKER_ID", "0"),
    ];
    check(&one, Source::Alone, (0, 1), None);
    // v4-16: two hosts; v5e-256: 64 hosts.
    for (hosts, worker) in [(2, "1"), (64, "63")] {
        let names: Vec<String> = (0..hosts).map(|index| format!("t1v-n-w-{index}")).collect();
        let names = names.join(",");
        let variables = [("TPU_WORKER_HOSTNAMES", &*names), ("TPU_WORKER_ID", worker)];
        let rank = worker.parse().unwrap();
        check(
            &variables,
            Source::Tpu,
            (rank, hosts),
            Some("t1v-n-w-0:29500"),
        );
    }
    let two_slices = [
        ("TPU_WORKER_HOSTNAMES", "b-0,b-1,b-2,b-3"),
        ("TPU_WORKER_ID", "2"),
        ("MEGASCALE_NUM_SLICES", "2"),
        ("MEGASCALE_SLICE_ID", "1"),
        ("MEGASCALE_COORDINATOR_ADDRESS", "a-0:8080"),
    ];
    check(&two_slices, Source::Tpu, (6, 8), Some("a-0:29500"));
    refused(
        &[("TPU_WORKER_HOSTNAMES", "a,b"), ("TPU_WORKER_ID", "2")],
        "worker 2 is not one of the 2 of TPU_WORKER_HOSTNAMES",
    );
}

#[test]
fn job_without_an_address_is_refused() {
    let variables = [&SRUN[..5]].concat();
    refused(
        &variables,
        "no variable has the address where the processes meet",
    );
}

#[test]
fn torchrun_in_slurm_is_nested() {
    // One torchrun on each of two nodes, with two processes each.
    let srun = [
        ("SLURM_STEP_ID", "0"),
        ("SLURM_PROCID", "1"),
        ("SLURM_NTASKS", "2"),
    ];
    let torchrun = [("RANK", "3"), ("WORLD_SIZE", "4"), ("MASTER_ADDR", "node0")];
    let variables = [&srun[..], &torchrun].concat();
    check(&variables, Source::Torchrun, (3, 4), Some("node0:29501"));
}

#[test]
fn launcher_of_processes_that_have_met_is_told() {
    let pmi = [("PMI_RANK", "5"), ("PMI_SIZE", "8"), ("PMI_FD", "7")];
    check(
        &[&pmi[..], &TORCHRUN].concat(),
        Source::Torchrun,
        (5, 8),
        None,
    );
}

#[test]
fn two_launchers_are_one_error() {
    refused(
        &[&HYDRA[..], &TORCHRUN].concat(),
        "this is process 1 of 4 by MPI (PMI_RANK=1 PMI_SIZE=4), but process 5 of 8 by torchrun \
         (RANK=5 WORLD_SIZE=8 MASTER_ADDR=node0 MASTER_PORT=29400)",
    );
}

#[test]
fn malformed_variables_are_refused() {
    refused(
        &[("PMI_FD", "7"), ("PMI_RANK", "x")],
        "PMI_RANK is `x`; expected a number",
    );
    refused(
        &[("PMI_FD", "7"), ("PMI_RANK", "4"), ("PMI_SIZE", "4")],
        "process 4 of 4: processes count from 0, and a job has at most 1048576 (PMI_RANK=4 PMI_SIZE=4)",
    );
    refused(&[("WORLD_SIZE", "2")], "RANK is missing");
}

#[test]
fn explicit_configuration_needs_no_other_to_be_right() {
    let explicit = [
        ("HALITE_PROCESS_ID", "1"),
        ("HALITE_NUM_PROCESSES", "2"),
        ("HALITE_COORDINATOR_ADDRESS", "10.0.0.1:7000"),
    ];
    for incomplete in [("WORLD_SIZE", "8"), ("TPU_WORKER_HOSTNAMES", "a,b")] {
        let variables = [&explicit[..], &[incomplete]].concat();
        check(&variables, Source::Explicit, (1, 2), Some("10.0.0.1:7000"));
    }
}

#[test]
fn unused_part_of_a_configuration_is_refused() {
    let address = ("HALITE_COORDINATOR_ADDRESS", "train-0.train");
    // An indexed job whose manifest lacks `completionMode: Indexed`.
    refused(
        &[("HALITE_NUM_PROCESSES", "4"), address],
        "HALITE_NUM_PROCESSES=4 HALITE_COORDINATOR_ADDRESS=train-0.train is set, and \
         HALITE_PROCESS_ID (in Kubernetes: JOB_COMPLETION_INDEX) is missing",
    );
    refused(
        &[("JOB_COMPLETION_INDEX", "1"), address],
        "HALITE_NUM_PROCESSES is missing",
    );
    let one = [("JOB_COMPLETION_INDEX", "0"), ("HALITE_NUM_PROCESSES", "1")];
    check(&one, Source::Alone, (0, 1), None);
}

#[test]
fn numbers_out_of_range_are_refused() {
    for port in ["65535", "18446744073709551615"] {
        let mut variables = TORCHRUN;
        variables[5].1 = port;
        refused(&variables, &format!("MASTER_PORT is `{port}`"));
    }
    let huge = [
        ("HALITE_PROCESS_ID", "1"),
        ("HALITE_NUM_PROCESSES", "1000000000000"),
        ("HALITE_COORDINATOR_ADDRESS", "a"),
    ];
    refused(&huge, "a job has at most 1048576");
    let slices = [
        ("TPU_WORKER_HOSTNAMES", "a,b"),
        ("TPU_WORKER_ID", "1"),
        ("MEGASCALE_NUM_SLICES", "18446744073709551615"),
        ("MEGASCALE_SLICE_ID", "18446744073709551614"),
    ];
    refused(&slices, "a job has at most 1048576");
}

/// What is left over in a shell, in any combination, is a job or an error.
#[test]
fn random_variables_are_a_job_or_an_error() {
    const NAMES: [&str; 27] = [
        "HALITE_PROCESS_ID",
        "HALITE_NUM_PROCESSES",
        "HALITE_COORDINATOR_ADDRESS",
        "HALITE_LAUNCHER",
        "PMI_RANK",
        "PMI_SIZE",
        "PMI_FD",
        "PMI_PORT",
        "PMIX_RANK",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        "SLURM_JOB_ID",
        "SLURM_STEP_ID",
        "SLURM_PROCID",
        "SLURM_NTASKS",
        "SLURM_STEP_NUM_TASKS",
        "SLURM_STEP_NODELIST",
        "RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "JOB_COMPLETION_INDEX",
        "TPU_WORKER_HOSTNAMES",
        "TPU_WORKER_ID",
        "MEGASCALE_NUM_SLICES",
    ];
    const VALUES: [&str; 16] = [
        "",
        " ",
        "0",
        "1",
        "2",
        "-1",
        "65535",
        "18446744073709551615",
        "a",
        "a,b",
        "a[1-2]",
        "a[",
        "::1",
        "[::1]:7",
        "a:7",
        "ü]:[",
    ];
    let mut state = 1u64;
    let mut draw = |count: usize| {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 33) as usize % count
    };
    let (mut jobs, mut errors) = (0, 0);
    for _ in 0..200_000 {
        let variables: Vec<_> = (0..draw(16))
            .map(|_| (NAMES[draw(NAMES.len())], VALUES[draw(VALUES.len())]))
            .collect();
        match recognize(&variables) {
            Ok(job) => {
                assert!(job.rank < job.size, "{variables:?}");
                let has_pmi = variables.iter().any(|(name, _)| name.starts_with("PMI_"));
                let meets = job.size == 1 || job.coordinator.is_some() || has_pmi;
                assert!(meets, "{variables:?}");
                jobs += usize::from(job.size > 1);
            }
            Err(error) => {
                let text = error.to_string();
                assert!(
                    text.starts_with("job: ") && !text.contains("job:  "),
                    "{text}"
                );
                errors += 1;
            }
        }
    }
    assert!(jobs > 100 && errors > 1000, "{jobs} jobs, {errors} errors");
}
