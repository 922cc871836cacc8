//! Switches a failure mode of the mock server on at the fire instant and off at the end.

blackstart_sdk::register!(fault: blackstart_fault_core::mock_fault::Fault);
