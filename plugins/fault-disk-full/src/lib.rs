//! Fills a file system of each victim.

blackstart_sdk::register!(fault: blackstart_fault_core::disk_full::Fault);
