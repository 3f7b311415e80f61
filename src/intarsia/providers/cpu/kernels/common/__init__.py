"""What every kernel family uses: schedules, epilogues, micro-kernels, work sharing."""
