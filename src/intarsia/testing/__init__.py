"""For authors of execution providers: conformance cases, a provider with faults, and a test suite for any provider."""
