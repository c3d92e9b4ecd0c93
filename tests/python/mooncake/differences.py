# SPDX-License-Identifier: Apache-2.0
"""Tests of our contract suite that Mooncake's wheel (0.3.13.post1) does not pass, and why ours does
otherwise. docs: "Coming from Mooncake" in python/mooncake/README.md."""

DIFFERENCES = {
    "test_remove_needs_no_lease_to_end": "Mooncake refuses to remove what was read within its "
    "lease (-706); ours lets readers keep their view",
    "test_get_batch_of_nothing_is_nothing": "Mooncake answers [b'']",
    "test_a_key_has_at_most_1024_bytes": "Mooncake's keys have no limit; ours: 1,024 bytes, -400",
    "test_no_memory_is_a_bad_parameter": "Mooncake reports bytes copied to and from address 0",
    "test_put_from_of_nothing_is_refused": "Mooncake says 0 and stores nothing; batch_put_from "
    "says -600 there, too",
    "test_scatter_into_more_room_than_the_object_has": "Mooncake fails with -800; get_into alone "
    "takes larger buffers there",
    "test_what_can_never_fit_is_no_space": "Mooncake says -600 when its local buffer is smaller",
    "test_a_buffer_handle_is_read_only": "Mooncake's handle is a private copy",
    "test_prefer_alloc_in_same_node_is_accepted": "Mooncake says -600 for a single put",
    "test_a_tensor_without_dimensions_stays_one": "Mooncake gives it one dimension",
    "test_a_protocol_that_is_not_there_is_an_error": "Mooncake takes any protocol's name",
    "test_others_reach_nothing_without_a_key": "Mooncake listens wherever it is told, for anybody",
    "test_memory_that_goes_away_is_refused": "Mooncake registers what is no memory",
}
