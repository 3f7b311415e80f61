"""What detectors find in pictures: outputs that are recognised, boxes that overlap, and the boxes drawn."""
