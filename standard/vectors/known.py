"""What other programs are known to read otherwise, and why: numbered, with the vectors that show it."""

SIGNED = ("int16", "int32", "int64")
ALL = (*SIGNED, "int8", "uint8", "uint16", "uint32", "uint64")

KNOWN = {
    "zarrs": {
        1: (
            "of signed integers of 16 bits and more, the sign is extended to the end of the byte that "
            "`last_bit` lies in, and no further.",
            [f"packbits/{name}-low" for name in SIGNED],
        ),
        2: (
            "where less than a chunk is read, as at the edge of an array, bits are not shifted back to "
            "`first_bit`.",
            ["packbits/edge-chunks", "packbits/one-bit", *(f"packbits/{name}-some" for name in ALL)],
        ),
        3: (
            "integers of all their bits are not read with a `padding_encoding`.",
            ["packbits/whole-padding"],
        ),
        4: (
            "padding bits, bytes of a mask that are neither 0 nor 1, and data where everything is null are "
            "not looked at.",
            ["packbits/refused-padding-bits", "optional/refused-mask-of-two", "optional/refused-null-data"],
        ),
        5: ("an inner data type without a `configuration` is not read.", ["optional/unsaid"]),
        6: ("axes in a list behind an axis that became two are refused.", ["reshape/split"]),
    }
}
