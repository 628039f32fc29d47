//! The trainings that are killed.

/// A training command.
#[derive(Clone, Copy, Debug)]
pub struct Configuration {
    /// Its name in the table.
    pub name: &'static str,
    /// Arguments of `halite`, or of the program [`TRAININGS`] if they begin with its name; `{text}` is
    /// replaced by the path of a text file, `{images}` by that of a directory of images.
    pub(super) arguments: &'static str,
    /// Processes of the job; 1 without a launcher.
    pub(super) processes: usize,
}

/// Name of the program with trainings that the command does not have.
pub const TRAININGS: &str = "trainings";

/// The trainings to kill: short ones, with many checkpoints.
pub const CONFIGURATIONS: [Configuration; 13] = [
    Configuration {
        name: "mlp",
        arguments: "train mnist --model mlp --limit 640 --batch-size 32 --epochs 2 \
                    --checkpoint-every 5",
        processes: 1,
    },
    Configuration {
        name: "cnn",
        arguments: "train mnist --model cnn --limit 96 --batch-size 16 --epochs 2 \
                    --checkpoint-every 2",
        processes: 1,
    },
    Configuration {
        name: "text",
        arguments: "train text --model tiny --data {text} --context 16 --steps 30 --batch-size 4 --epochs 2 \
                    --checkpoint-every 5 --sample 20",
        processes: 1,
    },
    Configuration {
        name: "eight devices",
        arguments: "train mnist --model mlp --accelerator cpu:8 --limit 320 --batch-size 32 --epochs 2 \
                    --checkpoint-every 5",
        processes: 1,
    },
    Configuration {
        name: "bf16-mixed",
        arguments: "train mnist --model mlp --precision bf16-mixed --limit 320 --batch-size 32 --epochs 2 \
                    --checkpoint-every 5",
        processes: 1,
    },
    Configuration {
        name: "accumulated",
        arguments: "train mnist --model cnn --limit 96 --batch-size 4 --accumulate-grad-batches 4 --epochs 2 \
                    --checkpoint-every 2 --checkpoint-mode copy --gradient-clip-val 0.5",
        processes: 1,
    },
    Configuration {
        name: "averaged",
        arguments: "train mnist --model mlp --limit 320 --batch-size 32 --epochs 2 --ema 0.9 \
                    --checkpoint-every 5 --checkpoint-mode stream",
        processes: 1,
    },
    Configuration {
        name: "plateau",
        arguments: "train mnist --model mlp --limit 320 --batch-size 16 --accumulate-grad-batches 2 --epochs 3 \
                    --val-check-interval 3 --schedule plateau:patience=0,factor=0.5,threshold=0.05 --ema 0.8 \
                    --checkpoint-every 4 --checkpoint-mode stream",
        processes: 1,
    },
    Configuration {
        name: "two updates",
        arguments: "trainings two-updates --batch-size 16 --accumulate-grad-batches 2 --max-epochs 3 \
                    --val-check-interval 4 --checkpoint-every 3 --checkpoint-mode copy",
        processes: 1,
    },
    Configuration {
        name: "streamed",
        arguments: "trainings two-updates --batch-size 32 --max-epochs 4 --gradient-clip-val 0.5 \
                    --checkpoint-every 3 --checkpoint-mode stream",
        processes: 1,
    },
    Configuration {
        name: "mixed data",
        arguments: "trainings mixed --data {images} --workers 2 --batch-size 8 --max-epochs 3 \
                    --val-check-interval 5 --checkpoint-every 4",
        processes: 1,
    },
    Configuration {
        name: "mixed, eight",
        arguments: "trainings mixed --data {images} --accelerator cpu:8 --batch-size 16 --max-epochs 4 \
                    --checkpoint-every 3 --checkpoint-mode stream",
        processes: 1,
    },
    Configuration {
        name: "streamed data",
        arguments: "trainings streamed --data {images} --workers 3 --batch-size 5 --last-batch pad \
                    --max-epochs 3 --checkpoint-every 4 --checkpoint-mode copy",
        processes: 1,
    },
];

/// Trainings of jobs of several processes.
pub const JOBS: [Configuration; 4] = [
    Configuration {
        name: "two",
        arguments: "train digits --model mlp --accelerator embedded --batch-size 64 --epochs 3 \
                    --checkpoint-every 5 --checkpoint-mode copy",
        processes: 2,
    },
    Configuration {
        name: "three",
        arguments: "train digits --model mlp --accelerator embedded --batch-size 96 --epochs 3 \
                    --checkpoint-every 4 --checkpoint-mode stream --ema 0.9",
        processes: 3,
    },
    Configuration {
        name: "four",
        arguments: "train digits --model mlp --accelerator embedded --batch-size 128 --epochs 4 \
                    --checkpoint-every 3 --checkpoint-mode copy --gradient-clip-val 0.5",
        processes: 4,
    },
    Configuration {
        name: "two on cpu",
        arguments: "train mnist --model mlp --accelerator cpu --limit 640 --batch-size 32 --epochs 2 \
                    --checkpoint-every 5 --checkpoint-mode stream",
        processes: 2,
    },
];
