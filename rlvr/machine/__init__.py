"""The machine that a run is on: its ranks, devices, folders and signals."""

from rlvr import door

__getattr__ = door(
    __name__,
    devices="choose_device computes_in_bf16 forward_passes",
    ending=(
        "AT_EXIT NO_ROOM asking_for_an_end end_one_of_several_ranks end_without_a_word leave "
        "let_no_print_fail"
    ),
    folders="checksum is_whole own remove scratch_folder",
    ranks="from_rank_0 gather gather_groups global_max global_mean global_sum process_group",
)
