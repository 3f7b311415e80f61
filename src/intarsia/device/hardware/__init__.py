"""The hardware of this machine: CPUs, GPUs and NPUs with the PCI numbers of their makers."""
