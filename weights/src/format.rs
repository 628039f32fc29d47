//! Formats of files.

/// A format of files of tensors.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum Format {
    /// safetensors.
    Safetensors,
    /// What `torch.save` writes: `.pt`, `.pth`, `.bin`, `.ckpt`.
    Torch,
    /// `.npz` and `.npy` of NumPy.
    Npz,
    /// GGUF of ggml and llama.cpp.
    Gguf,
}
