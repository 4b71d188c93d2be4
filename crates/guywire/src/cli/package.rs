//! The words of `guywire package`.

use std::path::PathBuf;

use clap::Subcommand;

use super::target::Listing;

#[derive(Debug, Subcommand)]
pub enum PackageCommand {
    /// Make room for a package, whose content is uploaded later
    Create {
        /// Data of your own that goes with it
        #[arg(long = "user-data", value_name = "KEY=VALUE")]
        user_data: Vec<String>,
    },
    /// Upload a package, and make room for it before
    Upload {
        /// The CSAR
        file: PathBuf,
        /// Upload into a package that was created before: its id, or the beginning of it
        #[arg(long, value_name = "PACKAGE")]
        into: Option<String>,
        /// Data of your own that goes with it
        #[arg(long = "user-data", value_name = "KEY=VALUE", conflicts_with = "into")]
        user_data: Vec<String>,
        /// Stay until it is onboarded, or refused with a reason
        #[arg(long, short)]
        wait: bool,
    },
    /// Packages
    List(Listing),
    /// One package, with the reason if it was refused
    Show {
        /// Its id or the beginning of it, its VNFD id or its product's name
        package: String,
    },
    /// Let instances be made of it
    Enable {
        /// Its id or the beginning of it, its VNFD id or its product's name
        package: String,
    },
    /// Let no further instances be made of it
    Disable {
        /// Its id or the beginning of it, its VNFD id or its product's name
        package: String,
    },
    /// Delete a package that is disabled and not in use
    Delete {
        /// Its id or the beginning of it, its VNFD id or its product's name
        #[arg(required = true)]
        packages: Vec<String>,
        /// Disable it first
        #[arg(long)]
        disable: bool,
    },
    /// Read a package as a manager would and say what is wrong with it; no manager is needed
    Check {
        /// The CSAR
        file: PathBuf,
        /// Refuse a package that nobody whom these certificates vouch for has signed (PEM)
        #[arg(long, value_name = "FILE")]
        trust: Option<PathBuf>,
    },
    /// Make a CSAR of a directory; the same directory gives the same bytes
    Pack {
        /// The directory that has TOSCA-Metadata in it
        dir: PathBuf,
        /// The CSAR [default: the directory's name with .csar]
        out: Option<PathBuf>,
    },
    /// Print a package's VNFD, or save all of its files as a ZIP archive
    Vnfd {
        /// Its id or the beginning of it, its VNFD id or its product's name
        package: String,
        /// Save a ZIP archive of all files of the VNFD here
        #[arg(long, value_name = "FILE")]
        zip: Option<PathBuf>,
    },
    /// Save one file out of a package
    Artifact {
        /// Its id or the beginning of it, its VNFD id or its product's name
        package: String,
        /// The file's path inside the package
        path: String,
        /// Where to; standard output if it is not given
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Save the whole package
    Download {
        /// Its id or the beginning of it, its VNFD id or its product's name
        package: String,
        /// Where to
        file: PathBuf,
    },
}
