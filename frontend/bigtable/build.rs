//! Turns the .proto files of Bigtable's API into Rust, without protoc.

use std::error::Error;

const FILES: &[&str] =
    &["google/bigtable/v2/bigtable.proto", "google/bigtable/admin/v2/bigtable_table_admin.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=google");
    tonic_prost_build::configure()
        // Keys and values are cut from the message, not copied.
        .bytes(".")
        .build_client(false)
        .compile_fds(protox::compile(FILES, ["."])?)?;
    Ok(())
}
