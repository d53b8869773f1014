    const struct number value = $unpack_a;
    const struct exact x = root_of(&value);
