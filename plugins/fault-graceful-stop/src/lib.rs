//! Asks one process of each victim to stop (SIGTERM).

blackstart_sdk::register!(fault: blackstart_fault_core::graceful_stop::Fault);
