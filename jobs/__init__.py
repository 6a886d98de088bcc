"""What happens, in what order, on which worker, in which file. The computing is in `kernels`."""
