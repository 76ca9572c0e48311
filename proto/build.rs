//! Turns the .proto files into Rust, without protoc.

use std::error::Error;

const FILES: &[&str] = &[
    "partita/access.proto",
    "partita/beat.proto",
    "partita/blame.proto",
    "partita/schema.proto",
    "partita/place.proto",
    "partita/catalog.proto",
    "partita/error.proto",
    "partita/command.proto",
    "partita/domain.proto",
    "partita/generation.proto",
    "partita/history.proto",
    "partita/load.proto",
    "partita/measures.proto",
    "partita/sequence.proto",
    "partita/series.proto",
    "partita/service.proto",
    "partita/raft.proto",
    "partita/task.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=partita");
    tonic_prost_build::configure()
        // Rows are cut from the message, not copied.
        .bytes(".partita.v1.Write.rows")
        .bytes(".partita.v1.WriteRequest.rows")
        .bytes(".partita.v1.ScanFrame.rows")
        .bytes(".partita.v1.FragmentRequest.fragment")
        .bytes(".partita.v1.CapturedChange.rows")
        .bytes(".partita.v1.LoadBeat.highest")
        .bytes(".partita.v1.HeatmapRequest.from_key")
        .bytes(".partita.v1.HeatmapRequest.to_key")
        .bytes(".partita.v1.Heatmap.json")
        .bytes(".partita.v1.RaftEntry.payload")
        .bytes(".partita.v1.RaftSnapshotOffer")
        .bytes(".partita.v1.RaftSnapshotChunk.data")
        // Secrets: their Debug is in src/wire/access.rs and its neighbours.
        .skip_debug([
            ".partita.v1.InitialPassword",
            ".partita.v1.Role",
            ".partita.v1.RoleEdit",
            ".partita.v1.Secrets",
            ".partita.v1.TaskRemote",
            ".partita.v1.Token",
        ])
        .compile_fds(protox::compile(FILES, ["."])?)?;
    Ok(())
}
