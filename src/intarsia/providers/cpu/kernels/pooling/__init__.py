"""Pools, pools of regions, Col2Im."""
