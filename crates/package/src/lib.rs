//! CSAR packages and their VNFDs: bytes in, a typed descriptor or a reason with file and line out.
