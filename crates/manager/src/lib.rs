//! The VNF manager: ETSI SOL003 on the durable plan engine.
