//! The messages and services that are generated from the .proto files, in the modules that their packages name.

/// Packages of Google.
#[allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::too_many_lines,
    clippy::allow_attributes_without_reason,
    clippy::clone_on_ref_ptr,
    reason = "generated"
)]
pub mod google {
    pub mod rpc {
        include!(concat!(env!("OUT_DIR"), "/google.rpc.rs"));
    }
    pub mod bigtable {
        pub mod v2 {
            include!(concat!(env!("OUT_DIR"), "/google.bigtable.v2.rs"));
        }
        pub mod admin {
            pub mod v2 {
                include!(concat!(env!("OUT_DIR"), "/google.bigtable.admin.v2.rs"));
            }
        }
    }
}

pub use google::bigtable::admin::v2 as tables;
pub use google::bigtable::v2 as data;
