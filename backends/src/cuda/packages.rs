//! Packages of NVIDIA's libraries for machines that have none, in versions of CUDA 13.0 and 13.1.
//! cuBLAS and cuDNN are of the versions that ran on an H100 and an H200 (`benches/hardware`).
//!
//! The user's own pip downloads them from its registry; their licence files are installed beside
//! them.

use std::path::PathBuf;

use halite_core::Result;
use halite_fetch::{Cache, Check, Client, FileSpec, Package, Progress, Step, Transform};

/// Name of [`PACKAGE`] for installation: `halite plugins install cuda-libraries`.
pub const LIBRARIES: &str = "cuda-libraries";

const LICENCE: &str = "NVIDIA's licences, which are installed beside the libraries, in `licences`";

/// The libraries of NVIDIA's that XLA's plugin opens while it runs, as one package: the runtime,
/// with the others as its parts.
pub const PACKAGE: Package = Package {
    parts: PARTS.split_at(1).1,
    ..PARTS[0]
};

/// Installs the libraries in the cache, if they are not there yet, and returns their folder
/// `nvidia`.
///
/// # Errors
/// As [`Cache::ensure_checked`](halite_fetch::Cache::ensure_checked).
pub fn install_libraries(cache: &Cache, progress: &mut dyn Progress) -> Result<PathBuf> {
    if cache.find(&PACKAGE)?.is_none() {
        progress.step(Step::Terms {
            package: &PACKAGE,
            terms: LICENCE,
        });
    }
    let installed = cache.ensure_checked(&PACKAGE, Check::Full, progress)?;
    Ok(installed.path(FOLDER))
}

/// The folder `nvidia` of the libraries in the cache, if they are installed.
pub(crate) fn installed(cache: &Cache) -> Option<PathBuf> {
    let found = cache.find(&PACKAGE).unwrap_or_else(|error| {
        halite_core::warning!("{error}");
        None
    });
    found.map(|found| found.path(FOLDER))
}

/// Folder of the libraries in the package.
const FOLDER: &str = "nvidia";

const fn wheel(
    platform: &'static str,
    name: &'static str,
    version: &'static str,
    archive_size: u64,
    sha256: &'static str,
    files: &'static [FileSpec],
) -> Package {
    Package {
        client: Client::Wheel {
            python: "3.11",
            platform,
        },
        name,
        version,
        archive_size,
        archive_sha256: Some(sha256),
        files,
        parts: &[],
    }
}

const fn file(
    inside: &'static str,
    name: &'static str,
    size: u64,
    sha256: &'static str,
) -> FileSpec {
    FileSpec {
        inside,
        name,
        size,
        sha256,
        transform: Transform::None,
    }
}

#[rustfmt::skip]
const PARTS: &[Package] = &[
    wheel("manylinux2014_x86_64", "nvidia-cuda-runtime", "13.0.96", 2_243_632, "7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548", &[
        file("nvidia/cu13/lib/libcudart.so.13", "nvidia/cu13/lib/libcudart.so.13", 704_288, "96c42e418cec19054186b9429c321603cc190bf26a18104e19408117a2a817b0"),
        file("nvidia_cuda_runtime-13.0.96.dist-info/licenses/License.txt", "licences/nvidia-cuda-runtime.txt", 59_262, "ad6f5853fba0ca0d159d0f58d49ae49830c2f8c93f7a92648b9ce90adb4c6ccd"),
    ]),
    wheel("manylinux2010_x86_64", "nvidia-nvjitlink", "13.0.88", 40_713_933, "13a74f429e23b921c1109976abefacc69835f2f433ebd323d3946e11d804e47b", &[
        file("nvidia/cu13/lib/libnvJitLink.so.13", "nvidia/cu13/lib/libnvJitLink.so.13", 98_806_736, "931347fa77d9fd5511059e04627f122b1ee33e409f22c3273ddddbe065713a3a"),
        file("nvidia_nvjitlink-13.0.88.dist-info/licenses/License.txt", "licences/nvidia-nvjitlink.txt", 59_262, "ad6f5853fba0ca0d159d0f58d49ae49830c2f8c93f7a92648b9ce90adb4c6ccd"),
    ]),
    wheel("manylinux2010_x86_64", "nvidia-cuda-nvrtc", "13.0.88", 90_215_200, "ad9b6d2ead2435f11cbb6868809d2adeeee302e9bb94bcf0539c7a40d80e8575", &[
        file("nvidia/cu13/lib/libnvrtc-builtins.so.13.0", "nvidia/cu13/lib/libnvrtc-builtins.so.13.0", 4_380_616, "91dcd944d01da9c0f08fff5d779db136a47f6d62bdb63bae900d2f481e92c3a2"),
        file("nvidia/cu13/lib/libnvrtc.so.13", "nvidia/cu13/lib/libnvrtc.so.13", 109_338_064, "a49e67e8e74590f1e98de55c39c6287efd3f59e3c3797464d7bbe0fe01349b11"),
        file("nvidia_cuda_nvrtc-13.0.88.dist-info/licenses/License.txt", "licences/nvidia-cuda-nvrtc.txt", 59_262, "ad6f5853fba0ca0d159d0f58d49ae49830c2f8c93f7a92648b9ce90adb4c6ccd"),
    ]),
    wheel("manylinux_2_27_x86_64", "nvidia-cublas", "13.1.0.3", 423_133_236, "ee8722c1f0145ab246bccb9e452153b5e0515fd094c3678df50b2a0888b8b171", &[
        file("nvidia/cu13/lib/libcublas.so.13", "nvidia/cu13/lib/libcublas.so.13", 54_177_976, "e70f38efabe986acd5eb683497c62f0f1730a6176ee291d9d24c6e339d1fbf86"),
        file("nvidia/cu13/lib/libcublasLt.so.13", "nvidia/cu13/lib/libcublasLt.so.13", 541_595_600, "656298c804f5adbb0df930545c17911b9584ab4e5101c0eeb65d1fe881d880f8"),
        file("nvidia_cublas-13.1.0.3.dist-info/licenses/License.txt", "licences/nvidia-cublas.txt", 59_262, "ad6f5853fba0ca0d159d0f58d49ae49830c2f8c93f7a92648b9ce90adb4c6ccd"),
    ]),
    wheel("manylinux_2_18_x86_64", "nvidia-nccl-cu13", "2.28.9", 196_493_177, "e4553a30f34195f3fa1da02a6da3d6337d28f2003943aa0a3d247bbc25fefc42", &[
        file("nvidia/nccl/lib/libnccl.so.2", "nvidia/nccl/lib/libnccl.so.2", 217_995_896, "1c8618b866734cbdd5401715d6178be763ece283b7f808ecf86dedab211162c1"),
        file("nvidia_nccl_cu13-2.28.9.dist-info/licenses/License.txt", "licences/nvidia-nccl-cu13.txt", 1_895, "0f0174a6b4e0b33ac26375bf729533075b32f4c51a5b6802a3d742d7dcdc9a76"),
    ]),
    wheel("manylinux_2_25_x86_64", "nvidia-cuda-cupti", "13.0.85", 10_715_597, "4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8", &[
        file("nvidia/cu13/lib/libcupti.so.13", "nvidia/cu13/lib/libcupti.so.13", 4_152_208, "e2f9ed861fe27c492b8bb52b5e3220ef5120f3edcda36312e96b7fd8a186be3e"),
        file("nvidia/cu13/lib/libnvperf_host.so", "nvidia/cu13/lib/libnvperf_host.so", 32_405_040, "efac1e754623c6cf52dbd7748451b94c9dedcae0a54e4666ec5d22db60068db3"),
        file("nvidia_cuda_cupti-13.0.85.dist-info/licenses/License.txt", "licences/nvidia-cuda-cupti.txt", 59_262, "ad6f5853fba0ca0d159d0f58d49ae49830c2f8c93f7a92648b9ce90adb4c6ccd"),
    ]),
    wheel("manylinux2014_x86_64", "nvidia-cusparse", "12.6.3.3", 145_942_937, "2b3c89c88d01ee0e477cb7f82ef60a11a4bcd57b6b87c33f789350b59759360b", &[
        file("nvidia/cu13/lib/libcusparse.so.12", "nvidia/cu13/lib/libcusparse.so.12", 162_565_256, "09339f848f60bb1111a61ee0fe91ed0c25132b7ff63298244d7ac14e61b58466"),
        file("nvidia_cusparse-12.6.3.3.dist-info/licenses/License.txt", "licences/nvidia-cusparse.txt", 59_262, "ad6f5853fba0ca0d159d0f58d49ae49830c2f8c93f7a92648b9ce90adb4c6ccd"),
    ]),
    wheel("manylinux_2_27_x86_64", "nvidia-cusolver", "12.0.4.66", 200_941_980, "0a759da5dea5c0ea10fd307de75cdeb59e7ea4fcb8add0924859b944babf1112", &[
        file("nvidia/cu13/lib/libcusolver.so.12", "nvidia/cu13/lib/libcusolver.so.12", 141_152_872, "c571d524fc5571e6c8a5784d51f75fbe8cf17590463c397a06e48428cb926c48"),
        file("nvidia_cusolver-12.0.4.66.dist-info/licenses/License.txt", "licences/nvidia-cusolver.txt", 59_262, "ad6f5853fba0ca0d159d0f58d49ae49830c2f8c93f7a92648b9ce90adb4c6ccd"),
    ]),
    wheel("manylinux2014_x86_64", "nvidia-cufft", "12.0.0.61", 214_085_489, "6c44f692dce8fd5ffd3e3df134b6cdb9c2f72d99cf40b62c32dde45eea9ddad3", &[
        file("nvidia/cu13/lib/libcufft.so.12", "nvidia/cu13/lib/libcufft.so.12", 286_542_352, "0933f68bb7e3bf90f86d70bc87cd2f69027f7757e89e5de5e19ec33a53fd8d3a"),
        file("nvidia_cufft-12.0.0.61.dist-info/licenses/License.txt", "licences/nvidia-cufft.txt", 59_262, "ad6f5853fba0ca0d159d0f58d49ae49830c2f8c93f7a92648b9ce90adb4c6ccd"),
    ]),
    wheel("manylinux2014_x86_64", "nvidia-nvshmem-cu13", "3.4.5", 60_412_546, "290f0a2ee94c9f3687a02502f3b9299a9f9fe826e6d0287ee18482e78d495b80", &[
        file("nvidia/nvshmem/lib/libnvshmem_host.so.3", "nvidia/nvshmem/lib/libnvshmem_host.so.3", 41_241_312, "c43004bb93053aa70603a204fe0c9052bdd29f38822d3048599183f8d5930d8f"),
        file("nvidia/nvshmem/lib/nvshmem_bootstrap_uid.so.3", "nvidia/nvshmem/lib/nvshmem_bootstrap_uid.so.3", 73_704, "69b2b46a146adec27389c3bbdb46efd3d0853dc32eead1f6e08d6d906ad70c82"),
        file("nvidia_nvshmem_cu13-3.4.5.dist-info/licenses/License.txt", "licences/nvidia-nvshmem-cu13.txt", 59_262, "ad6f5853fba0ca0d159d0f58d49ae49830c2f8c93f7a92648b9ce90adb4c6ccd"),
    ]),
    wheel("manylinux_2_27_x86_64", "nvidia-cudnn-cu13", "9.19.0.56", 366_066_321, "d20e1734305e9d68889a96e3f35094d733ff1f83932ebe462753973e53a572bf", &[
        file("nvidia/cudnn/lib/libcudnn.so.9", "nvidia/cudnn/lib/libcudnn.so.9", 129_240, "94f44e2e8fb2d4bca8c534b14f03ef84e095376dad72a257fd854377ef0b3427"),
        file("nvidia/cudnn/lib/libcudnn_adv.so.9", "nvidia/cudnn/lib/libcudnn_adv.so.9", 109_169_104, "87e2199f5bca489a1ed863afbb0b421c822fe0081a956d8c69216b3ae37c135f"),
        file("nvidia/cudnn/lib/libcudnn_cnn.so.9", "nvidia/cudnn/lib/libcudnn_cnn.so.9", 4_203_904, "36480b885ab03685d9b07c9fca4bbaeb3e7c3c7c4d81297cf8195b72cd3d8f20"),
        file("nvidia/cudnn/lib/libcudnn_engines_precompiled.so.9", "nvidia/cudnn/lib/libcudnn_engines_precompiled.so.9", 245_391_920, "7f8ce268b43c0fab298cc43854a006195bc16c0ed43bedf63b11f3699e92c6ae"),
        file("nvidia/cudnn/lib/libcudnn_engines_runtime_compiled.so.9", "nvidia/cudnn/lib/libcudnn_engines_runtime_compiled.so.9", 29_386_400, "1b0025cfeab270688d4563e287a5009389464ff140d0ebcf708314223523b99b"),
        file("nvidia/cudnn/lib/libcudnn_graph.so.9", "nvidia/cudnn/lib/libcudnn_graph.so.9", 4_451_728, "e292c689093f22325bffb7f84e68c58067c062a5cdd5534914ac1449f0a4e23f"),
        file("nvidia/cudnn/lib/libcudnn_heuristic.so.9", "nvidia/cudnn/lib/libcudnn_heuristic.so.9", 60_822_040, "9e0202a6bcc055fc921972f335be9eeec95e469582e0f603f6548df5209ab7dc"),
        file("nvidia/cudnn/lib/libcudnn_ops.so.9", "nvidia/cudnn/lib/libcudnn_ops.so.9", 39_855_888, "3e9182b90e8ba33027c1dcf42741ba2a8799eef3e8047cf341e00a6091ddec97"),
        file("nvidia_cudnn_cu13-9.19.0.56.dist-info/licenses/License.txt", "licences/nvidia-cudnn-cu13.txt", 18_174, "49cf79bdb35734b52fe6203013b3bd759f81e998cd32aa2c65c51db9a88c61d2"),
    ]),
];
