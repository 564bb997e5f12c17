"""The machine that a run is on: its ranks, devices, folders and signals."""

from rlvr import door

__getattr__ = door(
    __name__,
    devices="choose_device computes_in_bf16 forward_passes keep_freed_memory",
    ending="AT_EXIT end end_one_of_several_ranks handle_signals leave",
    folders="checksum is_whole own remove scratch_folder",
    ranks="from_rank_0 gather gather_groups global_max global_mean global_sum process_group",
)
